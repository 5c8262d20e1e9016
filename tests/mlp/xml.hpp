// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cctype>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace test {

/// An element of an XML document, with all that is in it.
struct xml_element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  ///< of this element alone
  std::vector<xml_element> children;

  /// All elements of a name within this one, in the order of the document.
  [[nodiscard]] std::vector<xml_element> all(const std::string& wanted) const {
    std::vector<xml_element> found;
    for (const xml_element& child : children) {
      if (child.name == wanted) found.push_back(child);
      for (auto& inner : child.all(wanted)) found.push_back(std::move(inner));
    }
    return found;
  }

  /// The text of the first child of a name; empty if there is none.
  [[nodiscard]] std::string text_of(const std::string& child_name) const {
    for (const xml_element& child : children) {
      if (child.name == child_name) return child.text;
    }
    return "";
  }

  [[nodiscard]] double number(const std::string& attribute) const {
    return std::stod(attributes.at(attribute));
  }
};

/// Reads an XML document without comments, instructions and types, and is strict about the rest:
/// throws `std::runtime_error` if it is not well-formed.
class xml_parser {
 public:
  explicit xml_parser(std::string_view text) : text_(text) {}

  xml_element document() {
    xml_element root = element();
    skip_space();
    if (at_ != text_.size()) fail("something after the root");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error("XML, byte " + std::to_string(at_) + ": " + why);
  }

  [[nodiscard]] char peek() const {
    if (at_ >= text_.size()) fail("the end of the text");
    return text_[at_];
  }
  char take() {
    const char c = peek();
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 && c != '\n' && c != '\t' && c != '\r') fail("a control character");
    ++at_;
    return c;
  }
  void expect(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) fail("not " + std::string{wanted});
    at_ += wanted.size();
  }
  bool skip_space() {
    const std::size_t before = at_;
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ != before;
  }

  std::string word() {
    std::string name;
    while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '-' ||
           peek() == ':') {
      name += take();
    }
    if (name.empty()) fail("no name");
    return name;
  }

  char entity() {
    expect("&");
    std::string name;
    while (peek() != ';') name += take();
    expect(";");
    const std::map<std::string, char> known{
        {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    const auto found = known.find(name);
    if (found == known.end()) fail("an unknown entity: " + name);
    return found->second;
  }

  std::string characters(char end) {
    std::string out;
    while (peek() != end) {
      if (peek() == '<') fail("< in a value");
      if (text_.substr(at_, 3) == "]]>") fail("]]> in text");
      out += peek() == '&' ? entity() : take();
    }
    return out;
  }

  xml_element element() {
    xml_element out;
    expect("<");
    out.name = word();
    while (skip_space() && peek() != '/' && peek() != '>') {
      const std::string key = word();
      expect("=\"");
      if (!out.attributes.emplace(key, characters('"')).second) fail("twice the attribute " + key);
      expect("\"");
    }
    if (peek() == '/') {
      expect("/>");
      return out;
    }
    expect(">");
    while (text_.substr(at_, 2) != "</") {
      if (peek() == '<') {
        out.children.push_back(element());
      } else {
        out.text += characters('<');
      }
    }
    expect("</" + out.name + ">");
    return out;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

[[nodiscard]] inline xml_element parse_xml(std::string_view text) {
  return xml_parser{text}.document();
}

}  // namespace test
