#include "cinch/report/internal/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "cinch/core/version.h"
#include "cinch/report/internal/format.h"

namespace cinch::report::internal {
namespace {

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1c2430;--soft:#5b6675;--faint:#e3e7ec;--grid:#e9edf1;
--good:#16794c;--good-bg:#e3f4eb;--bad:#b3261e;--bad-bg:#fbe7e5;--line:#1c2430;--accent:#3567c9;
--parameter:#4475d4;--optimizer_state:#8b67cf;--gradient:#e08a45;--buffer:#a3afbf;--input:#62b6cf;--activation:#37a480;
--temporary:#dcb344;--unknown:#7b8491;
--p-init:#cfd6df;--p-data:#c3dfe8;--p-forward:#bfd3f5;--p-backward:#f3cfb3;--p-optimizer:#d6c8f0;--p-evaluation:#bfe3d3;
--p-save:#efe0ae;--p-other:#e0e3e8}
@media (prefers-color-scheme:dark){:root{--bg:#12161c;--card:#1a2028;--ink:#e4e9f0;--soft:#98a4b3;--faint:#2c3440;
--grid:#262e39;--good:#6fd6a3;--good-bg:#16332a;--bad:#ff9b92;--bad-bg:#3d1f1e;--line:#e4e9f0;--accent:#7ea6f2;
--parameter:#5b8bea;--optimizer_state:#9d7be0;--gradient:#e2924f;--buffer:#7f8b9b;--input:#55a9c3;--activation:#3fae89;
--temporary:#cda63f;--unknown:#6c7683;
--p-init:#39434f;--p-data:#294752;--p-forward:#2c4269;--p-backward:#613f28;--p-optimizer:#46386b;--p-evaluation:#23513f;
--p-save:#574b23;--p-other:#333b46}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 24px 48px}
header{display:flex;flex-wrap:wrap;gap:4px 16px;align-items:baseline;margin-bottom:16px}
header h1{font-size:20px;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
header p{margin:0;color:var(--soft);font-size:13px}
.verdict{border-radius:10px;padding:14px 18px;font-size:18px;font-weight:600;overflow-wrap:anywhere}
.verdict.good{background:var(--good-bg);color:var(--good)}.verdict.bad{background:var(--bad-bg);color:var(--bad)}
.verdict small{display:block;font-size:13px;font-weight:400;color:var(--soft);margin-top:2px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:12px;margin:14px 0 0}
.cards div{background:var(--card);border:1px solid var(--faint);border-radius:10px;padding:10px 14px}
.cards dt{color:var(--soft);font-size:12px}.cards dd{margin:0;font-size:16px;line-height:1.35;font-weight:600;overflow-wrap:anywhere}
.cards dl{margin:0}
section{background:var(--card);border:1px solid var(--faint);border-radius:10px;padding:16px 18px;margin-top:14px;
overflow-x:auto}
h2{font-size:15px;margin:0 0 2px}section>p{margin:0 0 10px;color:var(--soft);font-size:13px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th{font-weight:500;color:var(--soft);text-align:left;border-bottom:1px solid var(--faint);padding:4px 10px 4px 0;font-size:12px}
td{padding:5px 10px 5px 0;border-bottom:1px solid var(--grid);vertical-align:middle}
tr:last-child td{border-bottom:0}
td.n,th.n{text-align:right;white-space:nowrap}
td.code{font-family:ui-monospace,"DejaVu Sans Mono",monospace;font-size:12.5px;overflow-wrap:anywhere}
tr.total td{font-weight:600;border-top:1px solid var(--faint)}tr.best td{background:var(--good-bg);font-weight:600}
tr.over td{color:var(--soft)}
.swatch{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:7px;vertical-align:-1px}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:12.5px;color:var(--soft);margin:4px 0 8px}
.bar{height:9px;border-radius:3px;min-width:1px}.bar+.bar{margin-top:3px;opacity:.55}td.bars{width:34%}
pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;font:12.5px/1.5 ui-monospace,"DejaVu Sans Mono",monospace}
code{font:12.5px ui-monospace,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
figure{margin:0;position:relative}svg{display:block;width:100%;height:auto;min-width:640px}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--soft)}
svg text.strong{fill:var(--ink);font-weight:600;paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}
svg text.tiny{font-size:10.5px;fill:var(--ink)}
.grid{stroke:var(--grid)}.axis{stroke:var(--faint)}.cut{stroke:var(--ink);stroke-opacity:.22}
.budget{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:6 4}svg text.budget-text{fill:var(--bad);stroke-dasharray:none;font-weight:600;
paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}
.overlay{fill:none;stroke:var(--line);stroke-width:1.4;stroke-dasharray:4 3}
.peak{fill:var(--card);stroke:var(--line);stroke-width:2}
.loss{fill:none;stroke:var(--accent);stroke-width:1.3;stroke-opacity:.75}.held{fill:none;stroke:var(--gradient);stroke-width:2}
.held-dot{fill:var(--gradient)}.front{fill:none;stroke:var(--accent);stroke-width:1.5}
.dot{fill:var(--card);stroke:var(--accent);stroke-width:2}.dot.best{fill:var(--good);stroke:var(--good)}.dot.over{stroke:var(--soft)}
.zone{fill:var(--bad);fill-opacity:.06}
.hair{stroke:var(--line);stroke-opacity:.5;visibility:hidden}
.tip{position:absolute;pointer-events:none;visibility:hidden;background:var(--card);border:1px solid var(--faint);border-radius:8px;
padding:7px 10px;font-size:12px;box-shadow:0 4px 16px rgba(0,0,0,.18);white-space:pre;z-index:2;font-variant-numeric:tabular-nums}
footer{color:var(--soft);font-size:12px;margin-top:16px}
)css";

constexpr std::string_view kScript = R"js(
for(const figure of document.querySelectorAll("figure[data-hover]")){
 const data=JSON.parse(figure.querySelector("script").textContent),svg=figure.querySelector("svg"),
  hair=figure.querySelector(".hair"),tip=figure.querySelector(".tip");
 const size=b=>b>=4294967296?(b/1073741824).toFixed(2)+" GiB":b>=1048576?(b/1048576).toFixed(1)+" MiB":b>=1024?(b/1024).toFixed(1)+" KiB":b+" B";
 svg.addEventListener("pointermove",event=>{
  const box=svg.getBoundingClientRect(),x=(event.clientX-box.left)/box.width*data.width;
  let best=0;
  data.x.forEach((at,i)=>{if(Math.abs(at-x)<Math.abs(data.x[best]-x))best=i});
  let total=0,lines=[];
  data.labels.forEach((label,c)=>{const b=data.bytes[c][best];total+=b;if(b)lines.unshift(label.padEnd(17)+size(b))});
  tip.textContent=(data.steps[best]?"step "+data.steps[best]+", ":"")+data.phases[data.phase[best]]+"\n"+size(total)+" live\n"+lines.join("\n");
  hair.setAttribute("x1",data.x[best]);hair.setAttribute("x2",data.x[best]);hair.style.visibility=tip.style.visibility="visible";
  const left=data.x[best]/data.width*box.width;
  tip.style.left=(left>box.width/2?left-tip.offsetWidth-12:left+12)+"px";tip.style.top="36px";});
 svg.addEventListener("pointerleave",()=>{hair.style.visibility=tip.style.visibility="hidden"});
}
)js";

std::string category_style() {
  std::string style;
  for (const trace::Category category : display_order()) {
    style += fmt::format(".{0}{{fill:var(--{1});background:var(--{1})}}", colour_class(category), name_of(category));
  }
  for (int i = 0; i < trace::kPhaseCount; ++i) {
    style += fmt::format(".p-{0}{{fill:var(--p-{0})}}", name_of(static_cast<trace::Phase>(i)));
  }
  return style;
}
}  // namespace

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string page(std::string_view title, const Environment& environment, std::string_view job, std::string_view body) {
  std::string where = "device " + escape(environment.device);
  if (environment.threads > 0) {
    where += fmt::format(" · {} thread{}", environment.threads, environment.threads == 1 ? "" : "s");
  }
  if (!environment.libtorch.empty()) where += " · LibTorch " + escape(environment.libtorch);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>{0}: {1}</title>\n<style>{2}{3}</style></head>\n<body><main>\n"
      "<header><h1>{0} · {1}</h1><p>{4}</p></header>\n{5}"
      "<footer>Written by cinch {6}. Sizes are requested bytes; 1 MiB = 1,048,576 B.</footer>\n"
      "</main>\n<script>{7}</script></body></html>\n",
      escape(title), escape(job), kStyle, category_style(), where, body, kVersion, kScript);
}

std::string verdict(std::string_view words, bool good, std::string_view note) {
  return fmt::format("<div class=\"verdict {}\">{}{}</div>\n", good ? "good" : "bad", escape(words),
                     note.empty() ? "" : fmt::format("<small>{}</small>", escape(note)));
}

std::string cards(const std::vector<std::pair<std::string, std::string>>& figures) {
  std::string result = "<div class=\"cards\">";
  for (const auto& [name, value] : figures) {
    result += fmt::format("<div><dl><dt>{}</dt><dd>{}</dd></dl></div>", escape(name), escape(value));
  }
  return result + "</div>\n";
}

std::string section(std::string_view title, std::string_view note, std::string_view content) {
  return fmt::format("<section><h2>{}</h2>{}{}</section>\n", escape(title),
                     note.empty() ? "" : fmt::format("<p>{}</p>", escape(note)), content);
}

std::string colour_class(trace::Category category) { return fmt::format("c-{}", name_of(category)); }

std::string legend(const std::vector<trace::CategoryBytes>& bytes) {
  std::string result = "<div class=\"legend\">";
  for (const trace::Category category : display_order()) {
    const auto occurs = [&](const trace::CategoryBytes& at) { return at[category].count() != 0; };
    if (std::none_of(bytes.begin(), bytes.end(), occurs)) continue;
    result += fmt::format("<span><i class=\"swatch {}\"></i>{}</span>", colour_class(category), label(category));
  }
  return result + "</div>";
}
}  // namespace cinch::report::internal
