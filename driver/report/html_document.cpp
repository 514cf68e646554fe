#include "driver/report/html_document.h"

#include <array>
#include <sstream>

#include <fmt/format.h>

namespace cp_pool {
namespace {

// The styles hold no character that XML would escape, since a browser takes the text in <style> literally.
constexpr const char* kColors = R"(
:root { color-scheme: light dark; --line: #8886; --pass: #1f7d3f; --bad: #c62b21; --other: #8a6100;
  --calm: #8db2de; --warm: #e8963a; --ink: #1c1c1c; --faint: #777; --padding: #ddd;
  --r0: #a9c9fb; --r1: #ffd68f; --r2: #b4e0ae; --r3: #f5b8c8; --r4: #cfc1f4; --r5: #a6dedb; --r6: #e3d0b3; --r7: #d4d4d4; }
@media screen and (prefers-color-scheme: dark) {
  :root { --pass: #52c878; --bad: #ff7466; --other: #dba83a;
    --calm: #44699a; --warm: #c8791f; --ink: #e8e8e8; --faint: #999; --padding: #3a3a3a;
    --r0: #2f5a94; --r1: #846016; --r2: #37743a; --r3: #8d4259; --r4: #5c4a98; --r5: #28716e; --r6: #74603f; --r7: #5c5c5c; }
}
)";

constexpr const char* kText = R"(
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em; overflow-wrap: anywhere; }
h1 { font-size: 1.4em; } h2 { font-size: 1.15em; margin-top: 2em; } h3 { font-size: 1em; }
pre, code, td, th { font-family: ui-monospace, monospace; font-size: 13px; }
pre { overflow-x: auto; margin: .5em 0; white-space: pre-wrap; overflow-wrap: anywhere; }
pre.wide { white-space: pre; }
table { border-collapse: collapse; display: block; overflow-x: auto; overflow-wrap: normal; }
td, th { border-bottom: 1px solid var(--line); padding: .15em .8em .15em 0; text-align: left; vertical-align: top; }
td.number { text-align: right; white-space: nowrap; }
td.bar { min-width: 8em; vertical-align: middle; }
.pass { color: var(--pass); } .bad { color: var(--bad); font-weight: bold; } .other { color: var(--other); }
details { border-left: 3px solid var(--bad); margin: 1em 0; padding-left: 1em; }
details.calm { border-color: var(--line); }
a { color: inherit; }
figure { margin: 1em 0; break-inside: avoid; }
figcaption { margin: .3em 0; max-width: 48em; }
figure.exchange { max-width: 24em; }
.row { display: flex; flex-wrap: wrap; gap: 0 2em; }
.scroll { overflow-x: auto; }
@media (max-width: 40em) { body { margin: 1em auto; } details { padding-left: .5em; } }
@media print {
  :root { color-scheme: light; }
  body { margin: 0; max-width: none; font-size: 11px; }
  pre, code, td, th { font-size: 9px; }
  pre.wide { white-space: pre-wrap; }
  table, .scroll { display: table; overflow: visible; overflow-wrap: anywhere; }
  .scroll { display: block; } th { overflow-wrap: normal; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
)";

// A picture that is taken out of the page keeps its colours with these styles and those above (tools/pictures).
constexpr const char* kPictures = R"(
svg { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
svg.picture { display: block; max-width: 100%; height: auto; }
svg.picture text { font: 11px system-ui, sans-serif; fill: var(--ink); }
svg.picture text.small { font-size: 9px; }
svg.picture text.faint { fill: var(--faint); }
svg.picture text.halo { paint-order: stroke; stroke: Canvas; stroke-width: 3; }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.fill-pass { fill: var(--pass); } .fill-bad { fill: var(--bad); } .fill-other { fill: var(--other); }
.fill-calm { fill: var(--calm); } .fill-warm { fill: var(--warm); } .fill-ink { fill: var(--ink); }
.fill-padding { fill: var(--padding); } .fill-none { fill: none; }
.every-rank { fill: var(--padding); }
.r0 { fill: var(--r0); } .r1 { fill: var(--r1); } .r2 { fill: var(--r2); } .r3 { fill: var(--r3); }
.r4 { fill: var(--r4); } .r5 { fill: var(--r5); } .r6 { fill: var(--r6); } .r7 { fill: var(--r7); }
.partly { fill-opacity: .45; } .tint { fill-opacity: .2; }
.edge { fill: none; stroke: var(--ink); stroke-width: 1; vector-effect: non-scaling-stroke; }
.thin { fill: none; stroke: var(--faint); stroke-width: .6; vector-effect: non-scaling-stroke; }
.bordered { stroke: var(--faint); stroke-width: .6; }
.dashed { stroke-dasharray: 4 3; }
.pool { fill: none; } .case { stroke: Canvas; stroke-width: .5; } .cross { stroke: var(--bad); stroke-width: 2.5; }
.texture { fill: none; stroke-width: 1.4; }
.stroke-ink { stroke: var(--ink); } .stroke-bad { stroke: var(--bad); } .stroke-warm { stroke: var(--warm); }
.stroke-other { stroke: var(--other); } .stroke-paper { stroke: Canvas; } .stroke-faint { stroke: var(--faint); }
)";

constexpr const char* kLayouts = R"(
svg.mask { width: 32em; }
svg.picture.timeline { width: 100%; min-width: 720px; max-width: none; }
svg.picture.timeline text { font-size: 13px; }
svg.parts { display: block; width: 100%; height: .9em; }
svg.strip { display: block; width: 100%; height: 36px; border-bottom: 1px solid var(--faint); }
.strips { display: grid; grid-template-columns: max-content 4fr 1fr; gap: .5em 1em; align-items: end; }
.strips span { white-space: nowrap; }
@media (max-width: 50em) { .strips { grid-template-columns: 3fr 1fr; } .strips span { grid-column: 1 / -1; margin-bottom: -.5em; } }
@media print { svg.picture.timeline { min-width: 0; } svg.mask { width: 26em; } }
)";

}  // namespace

HtmlDocument::HtmlDocument(const std::string& title) {
  document_.append_child(pugi::node_doctype).set_value("html");
  pugi::xml_node root = append(document_, "html", {{"lang", "en"}});
  pugi::xml_node head = root.append_child("head");
  append(head, "meta", {{"charset", "utf-8"}});
  append_text(head, "title", title);
  append(head, "meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  append_text(head, "style", std::string{kColors} + kText + kPictures + kLayouts);
  body_ = root.append_child("body");
}

std::string HtmlDocument::text() const {
  std::ostringstream text;
  // Written raw, because white space between elements would be visible.
  document_.save(text, "", pugi::format_raw | pugi::format_no_declaration, pugi::encoding_utf8);
  return text.str();
}

const char* outcome_class(Urgency urgency) {
  constexpr std::array<const char*, 3> kClasses{"pass", "other", "bad"};
  return kClasses.at(static_cast<std::size_t>(urgency));
}

std::string case_anchor(std::size_t index) {
  return fmt::format("case-{}", index);
}

pugi::xml_node append_table(pugi::xml_node parent, const std::vector<std::string>& head) {
  pugi::xml_node table = parent.append_child("table");
  pugi::xml_node row = table.append_child("tr");
  for (const std::string& name : head) append_text(row, "th", name);
  return table;
}

pugi::xml_node append_cell(pugi::xml_node row, const std::string& text, const char* kind) {
  pugi::xml_node cell = append_text(row, "td", text);
  if (kind != nullptr) set(cell, "class", kind);
  return cell;
}

}  // namespace cp_pool
