"""Reports in headless Chromium: what is drawn, read and pressed there, against numbers found another way.

  page_test.py MAKE_PAGE        exits with 77, after a sentence, where there is no browser, or no d3 was built in
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import chromium  # noqa: E402

KEYS = ["parameter", "optimizer_state", "gradient", "buffer", "input", "activation", "temporary", "unknown"]
EVENTS = 20_000


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="cinch-pages-")
        cls.browser = chromium.Browser(chromium.find())
        cls.made = {}

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def open(self, kind, width=1200, height=900, dark=False):
        out = f"{self.folder.name}/{kind}"
        if kind not in self.made:
            subprocess.run([sys.argv[1], kind, str(EVENTS), out], check=True)
            self.made[kind] = json.loads(pathlib.Path(out + ".json").read_text())
        self.browser.screen(width, height, dark)
        self.browser.open(out + ".html")
        self.browser.wait_for("window.cinchReport && true")
        return self.made[kind]

    def run_in_page(self, script):
        return self.browser.run("(() => { const report = cinchReport, chart = report.charts[0]; " + script + " })()")

    def place_of(self, event):
        """On the screen."""
        return self.run_in_page(f"chart.canvas.scrollIntoView({{block: 'center'}}); "
                                "const box = chart.canvas.getBoundingClientRect(); "
                                f"return [box.left + chart.x({event} + 0.5), box.top + (chart.top + chart.bottom) / 2];")

    def test_says_nothing_and_asks_for_nothing(self):
        for kind in ("estimate", "fit", "card"):
            for width, dark in ((1200, False), (1200, True), (360, False), (360, True)):
                self.open(kind, width, dark=dark)
                self.assertEqual(self.browser.complaints(), [], (kind, width, dark))
                wide = self.browser.run("document.documentElement.scrollWidth")
                self.assertLessEqual(wide, width, f"{kind} at {width} px is {wide} px wide")

    def test_every_sample_is_what_the_trace_has(self):
        expected = self.open("estimate")
        self.assertEqual(self.run_in_page("return report.histories.predicted.size"), expected["events"])
        for sample in expected["samples"] + [expected["peak"]]:
            seen = self.run_in_page(f"return report.histories.predicted.describe({sample['event']})")
            seen["bytes"] = dict(zip(KEYS, seen["bytes"]))
            for key, value in sample.items():
                self.assertEqual(seen[key], value, (sample["event"], key))
        self.assertEqual(self.run_in_page("return report.histories.predicted.peak"), expected["peak"]["event"])

    def test_the_highest_of_any_stretch_is_found(self):
        self.open("estimate")
        wrong = self.run_in_page("""
            const history = report.histories.predicted, wrong = [];
            for (let i = 0, seed = 1; i < 400; ++i) {
              const random = below => { seed = (seed * 48271) % 2147483647; return seed % below; };
              const begin = random(history.size - 1), end = begin + 1 + random(Math.min(history.size - begin, 1 << (i % 15)));
              let best = begin;
              for (let event = begin; event < end; ++event) if (history.total[event] > history.total[best]) best = event;
              if (history.highest(begin, end) !== best) wrong.push([begin, end]);
            }
            return wrong;""")
        self.assertEqual(wrong, [])

    def colour_at(self, x, y):
        return self.run_in_page(f"return [...chart.pen.getImageData(Math.round({x} * chart.ratio), "
                                f"Math.round({y} * chart.ratio), 1, 1).data]")

    def test_the_chart_is_drawn_by_category(self):
        for dark in (False, True):
            peak = self.open("estimate", dark=dark)["peak"]
            self.run_in_page(f"chart.show({peak['event']} - 20, {peak['event']} + 20)")
            below = 0
            for key in KEYS:
                if peak["bytes"][key] < peak["total"] // 50:
                    below += peak["bytes"][key]
                    continue
                place = self.run_in_page(f"return [chart.x({peak['event']} + 0.25), "
                                         f"chart.y({below + peak['bytes'][key] / 2})]")
                self.assertEqual(self.colour_at(*place), self.css_colour(key), (dark, key))
                below += peak["bytes"][key]

    def css_colour(self, key):
        text = self.browser.run(f"getComputedStyle(document.querySelector('.c-{key}')).backgroundColor")
        return [int(part) for part in text[4:-1].split(",")] + [255]

    def test_pointing_tells_the_event(self):
        sample = self.open("estimate")["samples"][20]
        self.run_in_page(f"chart.show({sample['event']} - 30, {sample['event']} + 30)")
        x, y = self.place_of(sample["event"])
        self.browser.mouse("mouseMoved", x, y)
        said = self.browser.run("document.querySelector('.live-tip').innerText")
        self.assertIn(f"step {sample['step']}, {sample['phase']}", said)
        self.assertIn(f"event {sample['event']:,} of {EVENTS:,}"[:12], said)
        self.assertIn(sample["module"], said)
        self.assertIn(sample["op"], said)
        self.assertIn(f"{sample['total'] / 2**20:,.1f} MiB", said)
        for key in KEYS:
            if sample["bytes"][key] > 2**20:
                self.assertIn(f"{sample['bytes'][key] / 2**20:,.1f} MiB", said)
        self.assertEqual(self.browser.run("getComputedStyle(document.querySelector('.live-tip')).visibility"), "visible")

    def view(self):
        return self.run_in_page("return [chart.begin, chart.end]")

    def test_dragging_zooms_and_a_double_click_shows_all(self):
        size = self.open("estimate")["events"]
        (x0, y), (x1, _) = self.place_of(size * 0.25), self.place_of(size * 0.5)
        self.browser.drag(x0, x1, y)
        begin, end = self.view()
        self.assertAlmostEqual(begin / size, 0.25, delta=0.01)
        self.assertAlmostEqual(end / size, 0.5, delta=0.01)
        self.browser.mouse("mousePressed", x0, y, button="left", clickCount=2)
        self.browser.mouse("mouseReleased", x0, y, button="left", clickCount=2)
        self.assertEqual(self.view(), [0, size])

    def test_the_wheel_zooms_with_ctrl_and_scrolls_without(self):
        size = self.open("estimate", height=500)["events"]
        x, y = self.place_of(size / 2)
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-200, modifiers=2)
        begin, end = self.view()
        self.assertAlmostEqual((end - begin) / size, 0.5, delta=0.01)
        self.assertAlmostEqual((begin + end) / 2 / size, 0.5, delta=0.01)
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=100)
        self.assertEqual(self.view(), [begin, end])

    def test_keys_reach_everything(self):
        expected = self.open("estimate")
        self.browser.run("document.querySelector('.frame canvas').focus()")
        self.browser.key("+", "+")
        begin, end = self.view()
        self.assertAlmostEqual(end - begin, expected["events"] / 2, delta=1)
        self.browser.key("p", "p")
        self.assertEqual(self.run_in_page("return chart.cursor"), expected["peak"]["event"])
        self.browser.key("ArrowRight")
        self.assertGreater(self.run_in_page("return chart.cursor"), expected["peak"]["event"])
        self.browser.key("0", "0")
        self.assertEqual(self.view(), [0, expected["events"]])
        unlabelled = self.browser.run("[...document.querySelectorAll('button,canvas,[role=img]')].filter(e => "
                                      "!(e.getAttribute('aria-label') || e.textContent.trim())).length")
        self.assertEqual(unlabelled, 0)

    def test_a_view_never_leaves_the_trace(self):
        size = self.open("estimate")["events"]
        for script in ("chart.pan(-5)", "chart.zoom(1e-9)", "chart.pan(1e9)", "chart.zoom(1e12)", "chart.show(-10, -5)"):
            self.run_in_page(script)
            begin, end = self.view()
            self.assertTrue(0 <= begin < end <= size, (script, begin, end))

    def test_the_treemap_sums_to_the_peak_at_every_level(self):
        peak = self.open("estimate")["peak"]
        self.assertEqual(self.run_in_page("return report.maps[0].root.bytes"), peak["total"])
        wrong = self.run_in_page("""
            const map = report.maps[0], wrong = [];
            const visit = node => {
              const entries = map.entries(node), sum = entries.reduce((bytes, entry) => bytes + entry.bytes, 0);
              if (sum !== node.bytes) wrong.push([node.path, sum, node.bytes]);
              for (const entry of entries) {
                if (entry.parts.reduce((bytes, part) => bytes + part, 0) !== entry.bytes) wrong.push(entry.label);
                if (entry.node) visit(entry.node);
              }
            };
            visit(map.root);
            return wrong;""")
        self.assertEqual(wrong, [])
        self.assertEqual(dict(zip(KEYS, self.run_in_page("return [...report.maps[0].root.parts]"))), peak["bytes"])

    def test_pressing_a_module_opens_it_and_the_trail_leads_back(self):
        self.open("estimate")
        area = self.run_in_page("const map = report.maps[0]; let area = 0; for (const block of map.map.children) "
                                "area += block.offsetWidth * block.offsetHeight; "
                                "return area / (map.map.clientWidth * map.map.clientHeight)")
        self.assertAlmostEqual(area, 1, delta=0.02)
        press = "[...document.querySelectorAll('button.block')].find(b => b.textContent.startsWith('%s')).click()"
        self.browser.run(press % "layers")
        self.browser.run(press % "7 ")
        self.assertEqual(self.run_in_page("return report.maps[0].here.path"), "layers.7")
        rows = self.browser.run("[...document.querySelectorAll('.sortable tbody tr td:nth-child(2)')].map(c => c.innerText)")
        self.assertTrue(rows and all(row.startswith("layers.*.") for row in rows), rows)
        self.assertIn("layers.*.attention.weight.exp_avg_sq", rows)
        self.browser.run(press % "attention")  # What belongs to a parameter is no module of its own.
        labels = self.browser.run("[...document.querySelectorAll('.block')].map(b => b.getAttribute('aria-label'))")
        for own in ("weight, 768×256", "weight.exp_avg, 768×256", "weight.exp_avg_sq, 768×256", "aten::_softmax, 8×4"):
            self.assertEqual(sum(label.startswith(own) for label in labels), 1, labels)
        self.assertEqual(self.browser.run("document.querySelectorAll('button.block').length"), 0)
        self.browser.run("document.querySelector('.trail button').click()")
        self.assertEqual(self.run_in_page("return report.maps[0].here.path"), "")

    def column(self, number):
        return self.browser.run(f"[...document.querySelectorAll('.sortable tbody tr td:nth-child({number})')]"
                                ".map(c => c.innerText)")

    def test_the_table_sorts_sums_and_unfolds(self):
        expected = self.open("estimate")
        numbers = [int(text.replace(",", "")) for text in self.column(5)]
        self.assertEqual(numbers, sorted(numbers, reverse=True))
        self.assertEqual(sum(numbers), expected["peak"]["total"])
        self.browser.run("document.querySelectorAll('.sortable th button')[1].click()")
        self.assertEqual(self.column(2), sorted(self.column(2)))
        self.assertEqual(self.browser.run("document.querySelectorAll('.sortable th')[1].getAttribute('aria-sort')"), "ascending")
        self.browser.run("document.querySelectorAll('.sortable th button')[1].click()")
        self.assertEqual(self.column(2), sorted(self.column(2), reverse=True))
        self.browser.run("document.querySelector('.tensors-live input').click()")
        self.browser.run("document.querySelector('.more').click()")
        self.assertEqual(len(self.column(2)), expected["tensors"])
        self.assertEqual(set(self.column(4)), {"1"})
        self.assertTrue(any("checkpoint" in text for text in self.column(7)))

    def test_prediction_lies_over_the_measurement(self):
        peak = self.open("fit")["peak"]
        self.assertEqual(self.browser.run("document.querySelectorAll('.memory-live').length"), 1)
        self.run_in_page(f"chart.show({peak['event']} - 8, {peak['event']} + 8)")
        self.assertEqual(self.run_in_page(f"return report.histories.measured.placeIn(report.histories.predicted, {peak['event']})"),
                         peak["event"])
        self.run_in_page(f"chart.pointAt({peak['event']})")
        self.assertIn("predicted", self.browser.run("document.querySelector('.live-tip').innerText"))

    def test_names_are_text_wherever_they_stand(self):
        self.open("hostile")
        self.assertEqual(self.browser.complaints(), [])
        self.browser.run("document.querySelectorAll('button.block').forEach(b => b.isConnected && b.click())")
        self.run_in_page("chart.pointAt(report.histories.predicted.peak)")
        self.assertFalse(self.browser.run("'hurt' in window"))
        self.assertEqual(self.browser.run("document.images.length"), 0)
        self.assertIn("</script><img src=x onerror", self.browser.run("document.querySelector('.live-tip').innerText"))

    def test_on_paper_and_without_script_the_static_figures_stand(self):
        self.open("estimate")
        shown = "['.still', '.moves'].map(s => getComputedStyle(document.querySelector(s)).display)"
        self.assertEqual(self.browser.run(shown), ["none", "block"])
        self.browser.screen(1000, 900, media="print")
        self.assertEqual(self.browser.run(shown), ["block", "none"])
        self.browser.screen(1000, 900)
        self.browser.run("document.documentElement.classList.remove('live')")
        self.assertEqual(self.browser.run(shown), ["block", "none"])
        self.assertTrue(self.browser.run("document.querySelector('.still svg').getBoundingClientRect().width > 300"))


def reason_to_skip():
    if not chromium.find():
        return "no Chromium here (Debian: apt-get install chromium), so the pages were not looked at"
    with tempfile.TemporaryDirectory(prefix="cinch-pages-") as folder:
        subprocess.run([sys.argv[1], "estimate", "1000", folder + "/page"], check=True)
        if "class MemoryChart" not in pathlib.Path(folder + "/page.html").read_text():
            return "built without d3 (Debian: libjs-d3), so pages have static figures alone"
    return None


if __name__ == "__main__":
    reason = reason_to_skip()
    if reason:
        print("skipped:", reason)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=1)
