// Brings the page to life. What it cannot do (no script, an old browser) the static figures and tables show.
const start = async () => {
  const histories = {};
  for (const script of document.querySelectorAll("script[id^='history-']")) {
    const id = script.id.slice("history-".length);
    histories[id] = await History.read(id);
  }
  document.documentElement.classList.add("live");
  const report = {histories, charts: [], maps: [], tables: []};
  for (const place of document.querySelectorAll(".memory-live"))
    report.charts.push(new MemoryChart(place, histories[place.dataset.history], histories[place.dataset.over] || null));
  for (const place of document.querySelectorAll(".tensors-live"))
    report.tables.push(new TensorTable(place, histories[place.dataset.history]));
  for (const place of document.querySelectorAll(".map-live")) {
    report.maps.push(new Treemap(place, histories[place.dataset.history], node => {
      for (const table of report.tables) if (table.place.dataset.history === place.dataset.history) table.show(node);
    }));
  }
  report.ready = performance.now();
  window.cinchReport = report;
};
start().catch(error => {
  document.documentElement.classList.remove("live");
  console.error(error);
});
