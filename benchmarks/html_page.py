#!/usr/bin/env python3
"""The HTML report of a trace of a million events in headless Chromium: how large, how soon usable, how fast it zooms.

    html_page.py MAKE_PAGE [--events 1000000] [--kinds estimate,varied,fit]

MAKE_PAGE is `build/…/bin/make_page` of the tests. Usable: from the navigation until charts, treemap and table are there
and a frame was drawn, median of nine loads. A zoom: the drawing itself, and until it is on the screen, over 200 views from the
whole trace down to single events. Exits with 1 where a target is missed.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "html"))
import chromium  # noqa: E402

MOST_BYTES, MOST_SECONDS, MOST_ZOOM_MS = 15_000_000, 3.0, 50.0

ZOOM = """(async () => {
  const chart = cinchReport.charts[0], size = chart.history.size, drawn = [], shown = [];
  const frame = () => new Promise(requestAnimationFrame);
  for (let i = 0; i < 200; ++i) {
    const span = size * Math.pow(0.93, i % 180), middle = size * (0.1 + 0.8 * ((i * 0.618) % 1));
    await frame();
    const begin = performance.now();
    chart.show(middle - span / 2, middle + span / 2);
    chart.pen.getImageData(chart.left + 9, chart.bottom - 1, 1, 1);  // What is queued is drawn by then.
    drawn.push(performance.now() - begin);
    await frame();  // The next one begins: this one is on the screen.
    shown.push(performance.now() - begin);
  }
  return {drawn, shown};
})()"""


def at_share(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("make_page")
    options.add_argument("--events", default="1000000")
    options.add_argument("--kinds", default="estimate,varied,fit")
    options = options.parse_args()
    path, missed = chromium.find(), False
    if not path:
        sys.exit("no Chromium here (Debian: apt-get install chromium)")
    print(f"load {os.getloadavg()[0]:.1f}; {options.events} events")
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds.split(","):
            page = f"{folder}/{kind}"
            subprocess.run([options.make_page, kind, options.events, page], check=True)
            size = os.path.getsize(page + ".html")
            browser = chromium.Browser(path)
            try:
                browser.screen(1280, 900)
                loads = []
                for _ in range(9):
                    browser.open(page + ".html")
                    browser.wait_for("window.cinchReport && true")
                    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
                    loads.append(browser.run("cinchReport.ready") / 1000)
                times = browser.run(ZOOM)
                heap = browser.run("performance.memory.usedJSHeapSize") / 2**20
            finally:
                browser.close()
            usable, drawn, shown = statistics.median(loads), at_share(times["drawn"], 0.95), at_share(times["shown"], 0.95)
            print(f"{kind}: {size / 1e6:.2f} MB, usable in {usable:.2f} s (worst {max(loads):.2f}), zoom p95 {drawn:.1f} ms "
                  f"drawn, {shown:.1f} ms on the screen (median {statistics.median(times['drawn']):.1f}, worst "
                  f"{max(times['drawn']):.1f} ms drawn), {heap:.0f} MiB of script memory")
            missed = missed or size > MOST_BYTES or usable > MOST_SECONDS or shown > MOST_ZOOM_MS
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
