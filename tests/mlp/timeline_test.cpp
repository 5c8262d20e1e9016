// SPDX-License-Identifier: BSL-1.0
#include "timeline.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "mlp/xml.hpp"
#include "support/catch.hpp"

namespace {

using test::parse_xml;
using test::xml_element;

/// Two loops of two batches, in hand-made times.
mlp::timeline example() {
  mlp::timeline shown;
  shown.title = "two batches";
  shown.description = "a description";
  shown.panels = {{"serial",
                   "in turn",
                   "800 µs",
                   {{"read", mlp::stage::read, {{0, 0, 150}, {1, 400, 600}}},
                    {"copy", mlp::stage::copy, {{0, 150, 200}, {1, 600, 650}}},
                    {"compute", mlp::stage::compute, {{0, 200, 400}, {1, 650, 800}}}}},
                  {"overlapped",
                   "at once",
                   "600 µs",
                   {{"worker", mlp::stage::read, {{0, 0, 200}, {1, 200, 400}}},
                    {"copy stream", mlp::stage::copy, {{0, 200, 250}, {1, 400, 450}}},
                    {"compute stream", mlp::stage::compute, {{0, 250, 450}, {1, 450, 600}}}}}};
  shown.bound = 400;
  shown.bound_note = "bound: 2 × 200 µs";
  shown.notes = {"a note"};
  return shown;
}

/// The bars of a stage, in the order of drawing.
std::vector<xml_element> bars(const xml_element& root, const std::string& stage) {
  auto found = root.all("rect");
  std::erase_if(found, [&](const xml_element& e) {
    return e.children.empty() || e.text_of("title").find(stage + ", batch") != 0;
  });
  return found;
}

bool has_text(const xml_element& root, const std::string& words) {
  const auto texts = root.all("text");
  return std::any_of(texts.begin(), texts.end(),
                     [&](const xml_element& e) { return e.text == words; });
}

}  // namespace

TEST_CASE("shares of time are as high as a lane is busy", "[mlp]") {
  auto shown = example();
  shown.shows_shares = true;
  shown.panels.resize(1);
  // Two threads, of which one is busy for half of the time, then both, then none.
  shown.bound = 0;
  shown.panels[0].lanes = {{"readers", mlp::stage::read, {{0, 0, 200}, {1, 100, 200}}, 2},
                           {"compute", mlp::stage::compute, {{0, 200, 400}}}};
  CHECK(mlp::busy_share(shown.panels[0].lanes[0], 400) == 300.0 / 800);
  CHECK(mlp::busy_share(shown.panels[0].lanes[1], 400) == 0.5);
  const auto root = parse_xml(mlp::svg_of(shown));
  std::string area;
  double top = 0;
  for (const auto& path : root.all("path")) {
    if (path.attributes.at("class") == "read") area = path.attributes.at("d");
  }
  for (const auto& box : root.all("rect")) {
    if (box.attributes.at("class") == "lane" && top == 0) top = box.number("y");
  }
  const double height = 20;
  const auto at = [&](double share) {
    const auto y = std::to_string(top + height * (1 - share));
    return area.find("V" + y.substr(0, y.find('.')));
  };
  REQUIRE(at(0.5) != std::string::npos);
  REQUIRE(at(1) != std::string::npos);
  CHECK(at(0.5) < at(1));
  CHECK(has_text(root, "µs"));
  shown.panels[0].lanes[1].spans.back().end = 2e5;
  const auto longer = parse_xml(mlp::svg_of(shown));
  CHECK(has_text(longer, "ms"));
  CHECK(has_text(longer, "200"));
  CHECK(bars(root, "read").empty());
}

TEST_CASE("bars lie where their times are, on one scale in all panels", "[mlp]") {
  const auto root = parse_xml(mlp::svg_of(example()));
  const auto reads = bars(root, "read");
  const auto steps = bars(root, "compute");
  REQUIRE(reads.size() == 4);
  REQUIRE(bars(root, "copy").size() == 4);
  REQUIRE(steps.size() == 4);

  // The first read begins at 0, the serial loop's last step ends at 800 us.
  const double zero = reads[0].number("x");
  const double pixels = (steps[1].number("x") + steps[1].number("width") - zero) / 800;
  CHECK(pixels > 0.5);
  const auto check = [&](const xml_element& bar, double begin, double end) {
    CHECK(std::abs(bar.number("x") - (zero + begin * pixels)) < 0.02);
    CHECK(std::abs(bar.number("width") - (end - begin) * pixels) < 0.02);
  };
  check(reads[0], 0, 150);
  check(reads[1], 400, 600);
  check(reads[3], 200, 400);
  check(steps[0], 200, 400);
  check(steps[2], 250, 450);
  check(steps[3], 450, 600);
  check(bars(root, "copy")[2], 200, 250);

  // The axis: a tick every 100 us, in its place.
  for (const auto& text : root.all("text")) {
    if (text.text == "300") CHECK(std::abs(text.number("x") - (zero + 300 * pixels)) < 0.02);
  }
  CHECK(has_text(root, "0"));
  CHECK(has_text(root, "800"));
  CHECK_FALSE(has_text(root, "900"));
}

TEST_CASE("the bound is marked at its time in each lane, and only if there is one", "[mlp]") {
  auto shown = example();
  const auto marks = [](const xml_element& root) {
    std::vector<std::string> found;
    for (const auto& path : root.all("path")) {
      if (path.attributes.at("class") == "bound") found.push_back(path.attributes.at("d"));
    }
    return found;
  };
  const auto root = parse_xml(mlp::svg_of(shown));
  const auto steps = bars(root, "compute");
  const double at_400 = steps[0].number("x") + steps[0].number("width");
  const auto found = marks(root);
  REQUIRE(found.size() == 7);  // six lanes, and the line of its dimension
  for (std::size_t i = 0; i < 6; ++i)
    CHECK(std::abs(std::stod(found[i].substr(1)) - at_400) < 0.02);
  CHECK(has_text(root, "bound: 2 × 200 µs"));

  shown.bound = 0;
  const auto without = parse_xml(mlp::svg_of(shown));
  CHECK(marks(without).empty());
  CHECK_FALSE(has_text(without, "bound: 2 × 200 µs"));
  // A bound after all bars is on the picture too.
  shown.bound = 1600;
  const auto later = parse_xml(mlp::svg_of(shown));
  CHECK(std::abs(bars(later, "compute")[0].number("width") / steps[0].number("width") - 0.5) <
        0.01);
}

TEST_CASE("nothing is drawn outside of the picture", "[mlp]") {
  auto shown = example();
  shown.bound = GENERATE(0.0, 10.0, 400.0, 799.0, 5000.0);
  const auto root = parse_xml(mlp::svg_of(shown));
  const double width = root.number("width");
  const double height = root.number("height");
  CHECK(width == 880);
  for (const auto& box : root.all("rect")) {
    CHECK(box.number("x") >= 0);
    CHECK(box.number("x") + box.number("width") <= width);
    CHECK(box.number("y") + box.number("height") <= height);
  }
  for (const auto& text : root.all("text")) {
    CAPTURE(text.text);
    CHECK(text.number("y") < height);
    // An estimate of a letter's mean width; the test is against words that lie outside altogether.
    const auto letters = static_cast<double>(text.text.size());
    const auto& classes = text.attributes.at("class");
    const double x = text.number("x");
    if (classes.find("right") != std::string::npos) {
      CHECK(x - 6 * letters > 0);
    } else if (classes.find("middle") == std::string::npos && classes != "on") {
      CHECK(x + 6 * letters < width);
    }
  }
}

TEST_CASE("text is escaped, in labels and in the picture's description", "[mlp]") {
  const std::string nasty = "<a & \"b\"> -- ]]> \x01 'µ'";
  const std::string shown_as = "<a & \"b\"> -- ]]>   'µ'";  // no control characters in XML
  auto shown = example();
  shown.title = nasty;
  shown.description = nasty;
  shown.notes = {nasty};
  shown.bound_note = nasty;
  shown.panels[0].name = nasty;
  shown.panels[0].note = nasty;
  shown.panels[0].figures = nasty;
  shown.panels[0].lanes[0].name = nasty;
  const auto root = parse_xml(mlp::svg_of(shown));
  CHECK(root.text_of("title") == shown_as);
  CHECK(root.text_of("desc") == shown_as);
  std::size_t found = 0;
  for (const auto& text : root.all("text")) found += text.text == shown_as ? 1U : 0U;
  CHECK(found == 7);
}

TEST_CASE("a bar that would be narrower than a pixel is one pixel wide", "[mlp]") {
  auto shown = example();
  shown.panels[0].lanes[1].spans = {{0, 150, 150.01}};
  const auto copies = bars(parse_xml(mlp::svg_of(shown)), "copy");
  CHECK(copies[0].number("width") == 1);
}

TEST_CASE("a batch's bars are one where no gap could be seen, and no others are", "[mlp]") {
  auto shown = example();
  // In disorder, as threads note them; 0.9 px are 1 us here.
  shown.panels[1].lanes[0].spans = {{1, 200.1, 300}, {0, 0, 100}, {0, 100.2, 200}, {1, 305, 400}};
  const auto root = parse_xml(mlp::svg_of(shown));
  const auto reads = bars(root, "read");
  REQUIRE(reads.size() == 2 + 3);
  CHECK(reads[2].text_of("title") == "read, batch 0: 0 to 200 µs");
  CHECK(reads[3].text_of("title") == "read, batch 1: 200.1 to 300 µs");
  CHECK(reads[4].text_of("title") == "read, batch 1: 305 to 400 µs");
}

TEST_CASE("bars are numbered where the number fits", "[mlp]") {
  auto shown = example();
  shown.panels.resize(1);
  shown.panels[0].lanes = {{"read", mlp::stage::read, {{7, 0, 100}, {123, 100, 102}}}};
  const auto root = parse_xml(mlp::svg_of(shown));
  CHECK(has_text(root, "7"));
  CHECK_FALSE(has_text(root, "123"));
}

TEST_CASE("lanes without spans, panels without lanes and no panels make pictures", "[mlp]") {
  auto shown = example();
  SECTION("an idle worker keeps its lane") {
    shown.panels[1].lanes[0].spans.clear();
    const auto root = parse_xml(mlp::svg_of(shown));
    CHECK(has_text(root, "worker"));
    CHECK(bars(root, "read").size() == 2);
  }
  SECTION("nothing recorded at all") {
    for (auto& panel : shown.panels) {
      for (auto& lane : panel.lanes) lane.spans.clear();
    }
    shown.bound = 0;
    const auto root = parse_xml(mlp::svg_of(shown));
    CHECK(bars(root, "read").empty());
    CHECK(has_text(root, "worker"));
    CHECK(mlp::svg_of(shown).find("nan") == std::string::npos);
    CHECK(mlp::svg_of(shown).find("inf") == std::string::npos);
  }
  SECTION("one span") {
    shown.panels = {{"one", "", "", {{"worker", mlp::stage::read, {{0, 0, 5}}}}}};
    shown.bound = 0;
    const auto root = parse_xml(mlp::svg_of(shown));
    CHECK(bars(root, "read").size() == 1);
    CHECK(has_text(root, "5"));
  }
  SECTION("no lanes") {
    for (auto& panel : shown.panels) panel.lanes.clear();
    CHECK(has_text(parse_xml(mlp::svg_of(shown)), "serial"));
  }
  SECTION("no panels") {
    shown.panels.clear();
    CHECK(has_text(parse_xml(mlp::svg_of(shown)), "a note"));
  }
}

TEST_CASE("the axis has two to ten ticks after 0, at any length", "[mlp]") {
  const double end = GENERATE(0.7, 3.0, 9.99, 10.0, 10.01, 999.0, 4321.0, 1e7);
  mlp::timeline shown;
  shown.panels = {{"one", "", "", {{"worker", mlp::stage::read, {{0, 0, end}}}}}};
  const auto root = parse_xml(mlp::svg_of(shown));
  std::vector<double> ticks;
  for (const auto& text : root.all("text")) {
    if (text.attributes.at("class") == "soft middle") ticks.push_back(std::stod(text.text));
  }
  CAPTURE(end, ticks.size());
  REQUIRE_FALSE(ticks.empty());
  CHECK(ticks[0] == 0);
  CHECK(ticks.size() <= 11);
  if (end >= 1) {
    CHECK(ticks.size() >= 3);
    CHECK(ticks.back() <= end);
  }
}

TEST_CASE("the end of some lanes is that of their last span", "[mlp]") {
  CHECK(mlp::end_of({}) == 0);
  CHECK(mlp::end_of(example().panels[0].lanes) == 800);
  CHECK(mlp::end_of(example().panels[1].lanes) == 600);
}

TEST_CASE("the picture has colours for light and dark, no script and nothing from elsewhere",
          "[mlp]") {
  const std::string svg = mlp::svg_of(example());
  CHECK(svg.find("@media (prefers-color-scheme: dark)") != std::string::npos);
  const auto root = parse_xml(svg);
  CHECK(root.all("script").empty());
  CHECK(root.all("image").empty());
  CHECK(svg.find("url(") == std::string::npos);
  CHECK(svg.find("@import") == std::string::npos);
  CHECK(svg.find("href") == std::string::npos);
}
