// SPDX-License-Identifier: BSL-1.0
#include "timeline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace mlp {

namespace {

// The layout, in pixels.
constexpr double width = 880;
constexpr double margin = 20;
constexpr double left = 134;  // of the axis: the lanes' names stand before it
constexpr double right = width - 28;
constexpr double lane_height = 20;
constexpr double lane_distance = 26;
constexpr double line_height = 17;
constexpr double least_bar = 1;

constexpr std::array<std::string_view, 3> stage_names{"read", "copy", "compute"};

// Text on bars has a contrast of 4.5 at least in both.
constexpr std::string_view style = R"(
svg { color-scheme: light dark }
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; fill: #1f2328 }
.title, .name { font-weight: 600 } .title { font-size: 14px } .name { font-size: 13px }
.soft { fill: #59636e } .small { font-size: 11.5px }
.right { text-anchor: end } .middle { text-anchor: middle }
.page { fill: #ffffff } .frame { stroke: #d1d9e0 } .lane { fill: #f3f5f7 } .grid { stroke: #d1d9e0 }
.bound { stroke: #cf222e; stroke-width: 1.5; fill: none } text.bound { stroke: none; fill: #cf222e }
.read { fill: #0969da } .read.odd { fill: #0550ae }
.copy { fill: #d4700a } .copy.odd { fill: #a04b00 }
.compute { fill: #1f883d } .compute.odd { fill: #116329 }
text.on { fill: #ffffff; font-size: 11px; text-anchor: middle }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .soft { fill: #9198a1 }
  .page { fill: #0d1117 } .frame { stroke: #3d444d } .lane { fill: #171d25 } .grid { stroke: #3d444d }
  .bound { stroke: #ff7b72 } text.bound { fill: #ff7b72 }
  .read { fill: #58a6ff } .read.odd { fill: #8dc4ff }
  .copy { fill: #e3992f } .copy.odd { fill: #f5c069 }
  .compute { fill: #3fb950 } .compute.odd { fill: #74d67f }
  text.on { fill: #0d1117 }
}
)";

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  std::string shortest = text;
  shortest.erase(shortest.find_last_not_of('0') + 1);
  if (shortest.back() == '.') shortest.pop_back();
  return shortest == "-0" ? "0" : shortest;
}

/// An estimate from above: which font the viewer has is not known.
double text_width(std::string_view text) { return 6.5 * static_cast<double>(text.size()); }

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // XML has no way to write the other control characters.
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

/// Builds the document from the top down.
class drawing {
 public:
  explicit drawing(double end) : scale_(end > 0 ? (right - left) / end : 0) {}

  [[nodiscard]] double x_of(double microseconds) const { return left + microseconds * scale_; }
  [[nodiscard]] double microseconds_of(double pixels) const {
    return scale_ > 0 ? pixels / scale_ : 0;
  }

  void text(double x, double y, std::string_view classes, std::string_view words) {
    body_ += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" class=\"";
    body_ += classes;
    body_ += "\">" + escaped(words) + "</text>\n";
  }

  void box(std::string_view classes, double x, double y, double w, double h, double radius = 0,
           std::string_view tip = {}) {
    body_ += "<rect class=\"";
    body_ += classes;
    body_ += "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(w) +
             "\" height=\"" + number(h) + "\"";
    if (radius > 0) body_ += " rx=\"" + number(radius) + "\"";
    body_ += tip.empty() ? "/>\n" : "><title>" + escaped(tip) + "</title></rect>\n";
  }

  void path(std::string_view classes, std::string_view d) {
    body_ += "<path class=\"";
    body_ += classes;
    body_ += "\" d=\"";
    body_ += d;
    body_ += "\"/>\n";
  }

  void vertical(std::string_view classes, double x, double from, double to) {
    path(classes, "M" + number(x) + " " + number(from) + "V" + number(to));
  }

  [[nodiscard]] std::string document(double height, const timeline& shown) const {
    const std::string w = number(width);
    const std::string h = number(height);
    return R"(<svg xmlns="http://www.w3.org/2000/svg" width=")" + w + "\" height=\"" + h +
           "\" viewBox=\"0 0 " + w + " " + h + "\" role=\"img\">\n<title>" + escaped(shown.title) +
           "</title>\n<desc>" + escaped(shown.description) + "</desc>\n<style>" +
           std::string{style} +
           "</style>\n<rect class=\"page frame\" x=\"0.5\" y=\"0.5\" width=\"" + number(width - 1) +
           "\" height=\"" + number(height - 1) + "\" rx=\"6\"/>\n" + body_ + "</svg>\n";
  }

 private:
  double scale_;
  std::string body_;
};

/// The spans in the order of their begins, joined where the gap could not be seen.
std::vector<span> joined(std::vector<span> spans, double least_gap) {
  std::sort(spans.begin(), spans.end(),
            [](const span& a, const span& b) { return a.begin < b.begin; });
  std::vector<span> out;
  for (const span& s : spans) {
    if (!out.empty() && out.back().batch == s.batch && s.begin - out.back().end < least_gap) {
      out.back().end = std::max(out.back().end, s.end);
    } else {
      out.push_back(s);
    }
  }
  return out;
}

void draw_spans(drawing& to, const lane& drawn, double y) {
  const std::string_view stage_name = stage_names[static_cast<std::size_t>(drawn.kind)];
  for (const span& s : joined(drawn.spans, to.microseconds_of(0.5))) {
    const double x = to.x_of(s.begin);
    const double length = std::max(least_bar, to.x_of(s.end) - x);
    const std::string label = std::to_string(s.batch);
    to.box(std::string{stage_name} + (s.batch % 2 == 1 ? " odd" : ""), x, y, length, lane_height, 0,
           std::string{stage_name} + ", batch " + label + ": " + number(s.begin) + " to " +
               number(s.end) + " µs");
    if (text_width(label) <= length) {
      to.text(x + length / 2, y + lane_height / 2 + 4, "on", label);
    }
  }
}

/// How busy a lane is, over every two pixels: as high as the lane where all of its threads are.
void draw_shares(drawing& to, const lane& drawn, double y) {
  constexpr double pixels = 2;
  const double each = to.microseconds_of(pixels);
  std::vector<double> busy(static_cast<std::size_t>((right - left) / pixels));
  const auto place = [&](double time) {
    return std::min(busy.size() - 1, static_cast<std::size_t>(std::max(0.0, time / each)));
  };
  for (const span& s : drawn.spans) {
    if (each <= 0) break;
    for (std::size_t i = place(s.begin); i <= place(s.end); ++i) {
      const double begin = static_cast<double>(i) * each;
      busy[i] += std::max(0.0, std::min(s.end, begin + each) - std::max(s.begin, begin));
    }
  }
  std::string area = "M" + number(left) + " " + number(y + lane_height);
  for (std::size_t i = 0; i < busy.size(); ++i) {
    const double share =
        each > 0 ? std::min(1.0, busy[i] / each / static_cast<double>(drawn.threads)) : 0;
    area += "V" + number(y + lane_height * (1 - share)) + "H" +
            number(left + static_cast<double>(i + 1) * pixels);
  }
  to.path(stage_names[static_cast<std::size_t>(drawn.kind)],
          area + "V" + number(y + lane_height) + "Z");
}

/// A dimension line from 0 to the bound.
void draw_bound(drawing& to, const timeline& shown, double y) {
  const double x = to.x_of(shown.bound);
  const std::string middle = number(y);
  to.path("bound", "M" + number(left) + " " + number(y - 6) + "v12M" + number(left) + " " + middle +
                       "H" + number(x) + "m0 -6v12");
  const double length = text_width(shown.bound_note);
  if (x + 8 + length <= right) {
    to.text(x + 8, y + 4, "bound", shown.bound_note);
  } else {
    const double centre = (left + x) / 2;
    to.box("page", centre - length / 2 - 6, y - 8, length + 12, 16);
    to.text(centre, y + 4, "bound middle", shown.bound_note);
  }
}

/// The distance of the axis's ticks: 1, 2 or 5 times a power of ten, for ten of them at most.
double tick_distance(double end) {
  double step = 1;
  while (true) {
    for (const double times : {1.0, 2.0, 5.0}) {
      if (end <= 10 * times * step) return times * step;
    }
    step *= 10;
  }
}

void draw_legend(drawing& to, double y) {
  double x = right;
  for (std::size_t i = stage_names.size(); i-- > 0;) {
    x -= static_cast<double>(stage_names[i].size()) * 7 + 6;
    to.text(x, y, "", stage_names[i]);
    to.box(stage_names[i], x - 16, y - 10, 11, 11, 2);
    x -= 30;
  }
}

}  // namespace

double end_of(const std::vector<lane>& lanes) {
  double end = 0;
  for (const lane& each : lanes) {
    for (const span& s : each.spans) end = std::max(end, s.end);
  }
  return end;
}

double busy_share(const lane& measured, double end) {
  double busy = 0;
  for (const span& s : measured.spans) busy += std::min(s.end, end) - std::min(s.begin, end);
  return end > 0 ? busy / end / static_cast<double>(measured.threads) : 0;
}

std::string svg_of(const timeline& shown) {
  double end = shown.bound;
  for (const panel& each : shown.panels) end = std::max(end, end_of(each.lanes));
  drawing to{end};
  const double step = tick_distance(end);
  const double unit = end < 1e5 ? 1 : 1e3;  // of the axis, in microseconds
  const int ticks = end > 0 ? static_cast<int>(end / step + 1e-9) : 0;

  double y = 30;
  to.text(margin, y, "title", shown.title);
  draw_legend(to, y);
  for (const panel& each : shown.panels) {
    y += 36;
    to.text(margin, y, "name", each.name);
    to.text(left, y, "soft", each.note);
    to.text(right, y, "right", each.figures);
    y += 10;
    for (std::size_t i = 0; i < each.lanes.size(); ++i) {
      to.text(left - 10, y + lane_height / 2 + 4, "right", each.lanes[i].name);
      // Between the lanes alone, so that it crosses no bar and no number.
      if (shown.bound > 0) to.vertical("bound", to.x_of(shown.bound), y - 6, y);
      to.box("lane", left, y, right - left, lane_height);
      for (int t = 0; t <= ticks; ++t) to.vertical("grid", to.x_of(t * step), y, y + lane_distance);
      if (shown.shows_shares) {
        draw_shares(to, each.lanes[i], y);
      } else {
        draw_spans(to, each.lanes[i], y);
      }
      y += lane_distance;
    }
    y -= lane_distance - lane_height;
  }
  if (shown.bound > 0) {
    y += 20;
    draw_bound(to, shown, y);
  }
  y += 16;
  to.path("grid", "M" + number(left) + " " + number(y) + "H" + number(right));
  for (int t = 0; t <= ticks; ++t) {
    to.vertical("grid", to.x_of(t * step), y, y + 5);
    to.text(to.x_of(t * step), y + 19, "soft middle", number(t * step / unit));
  }
  to.text(left - 10, y + 19, "soft right", unit == 1 ? "µs" : "ms");
  y += 26;
  for (const std::string& line : shown.notes) {
    y += line_height;
    to.text(margin, y, "soft small", line);
  }
  return to.document(y + 16, shown);
}

}  // namespace mlp
