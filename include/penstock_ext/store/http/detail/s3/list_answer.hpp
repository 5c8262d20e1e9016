// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>
#include <penstock_ext/store/http/http_options.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// An XML document from S3, parsed by pugixml. To limit memory, documents with more depth or markup
/// than any S3 response are rejected. Document types and CDATA are rejected too.
class s3_xml {
 public:
  static constexpr int deepest = 16;
  static constexpr std::size_t max_markup = std::size_t{1} << 20U;

  /// Parses `text`. After an error, `problem()` describes the error, and the part before the error
  /// is accessible.
  explicit s3_xml(std::string_view text) {
    if (static_cast<std::size_t>(std::count(text.begin(), text.end(), '<') +
                                 std::count(text.begin(), text.end(), '=')) > max_markup) {
      problem_ = "more than " + std::to_string(max_markup) + " signs '<' and '='";
      return;
    }
    if (const std::size_t bad = unsound_reference(text); bad != std::string_view::npos) {
      problem_ = "an invalid character reference";
      offset_ = bad;
    }
    constexpr unsigned options = pugi::parse_escapes | pugi::parse_cdata | pugi::parse_doctype |
                                 pugi::parse_ws_pcdata_single;
    const pugi::xml_parse_result result =
        document_.load_buffer(text.data(), text.size(), options, pugi::encoding_utf8);
    if (result.status == pugi::status_out_of_memory) throw std::bad_alloc();
    if (!problem_.empty()) return;
    rejection rejected;
    if (!result) {
      problem_ = result.description();
      // pugixml also counts the NUL that it writes at the end.
      offset_ = (std::min)(static_cast<std::size_t>(result.offset), text.size());
    } else if (!document_.traverse(rejected)) {
      problem_ = rejected.why;
      offset_ = offset_of(rejected.where);
    }
  }

  /// Returns a description of the error, or "".
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  /// Returns the byte offset of the error.
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
  /// Returns the root element.
  [[nodiscard]] pugi::xml_node root() const { return document_.document_element(); }

  /// Returns the byte offset of a node in the text, or 0 for a null node.
  [[nodiscard]] static std::size_t offset_of(const pugi::xml_node& node) {
    return static_cast<std::size_t>((std::max)(node.offset_debug(), std::ptrdiff_t{0}));
  }

  /// Returns the text of an element that contains only text, otherwise "".
  [[nodiscard]] static std::string_view text_in(const pugi::xml_node& element) {
    const pugi::xml_node text = element.first_child();
    return text.type() == pugi::node_pcdata && !text.next_sibling() ? text.value() : "";
  }

 private:
  struct rejection final : pugi::xml_tree_walker {
    bool for_each(pugi::xml_node& node) override {
      where = node;
      why = depth() >= deepest                  ? "elements deeper than 16"
            : node.type() == pugi::node_cdata   ? "a CDATA section"
            : node.type() == pugi::node_doctype ? "a document type"
                                                : nullptr;
      return why == nullptr;
    }
    pugi::xml_node where = {};
    const char* why = nullptr;
  };

  // Returns the position of the first invalid character reference in `text`. pugixml treats such a
  // reference as plain text.
  [[nodiscard]] static std::size_t unsound_reference(std::string_view text) noexcept {
    std::size_t at = text.find('&');
    for (; at != std::string_view::npos; at = text.find('&', at + 1)) {
      const std::string_view rest = text.substr(at + 1, 16);
      const std::string_view name = rest.substr(0, rest.find(';'));
      if (name.size() == rest.size()) return at;
      if (name == "amp" || name == "lt" || name == "gt" || name == "quot" || name == "apos")
        continue;
      const bool is_hex = name.starts_with("#x");
      std::uint32_t code = 0;
      const char* const end = name.data() + name.size();
      const auto [stop, error] =
          std::from_chars(name.data() + (std::min)(name.size(), std::size_t{is_hex ? 2U : 1U}), end,
                          code, is_hex ? 16 : 10);
      if (!name.starts_with('#') || error != std::errc{} || stop != end || code == 0 ||
          code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
        return at;
      }
    }
    return text.find('\0');
  }

  pugi::xml_document document_;
  std::string problem_ = {};
  std::size_t offset_ = 0;
};

/// Decodes %XX and '+'. Returns nothing if a '%' is not followed by two digits.
[[nodiscard]] inline std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    std::uint8_t byte = 0;
    const char* const end = text.data() + i + 3;
    if (std::from_chars(end - 2, end, byte, 16).ptr != end) return std::nullopt;
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

/// A page of a bucket listing, which is a ListObjectsV2 response.
struct list_answer {
  std::vector<s3_object> objects = {};
  std::string next = {};  ///< token of the next page, or "" on the last page

  /// Parses `text`, the response from `url`. Throws `bad_response` with `url` and the position in
  /// the response.
  [[nodiscard]] static list_answer parse(std::string_view text, const std::string& url) {
    const s3_xml xml{text};
    const auto require = [&](bool holds, std::size_t offset, const char* expected,
                             const std::string& found) {
      if (!holds) throw bad_response(url, offset, expected, found);
    };
    require(xml.problem().empty(), xml.offset(), "the XML of a bucket's listing", xml.problem());
    const pugi::xml_node root = xml.root();
    require(root.name() == std::string_view{"ListBucketResult"}, s3_xml::offset_of(root),
            "ListBucketResult", std::string{std::string_view{root.name()}.substr(0, 64)});
    // S3 keys have at most 1024 bytes, or three times as many if encoded. libcurl accepts URLs of
    // up to 8 MB.
    const auto short_text = [&](const pugi::xml_node& element, std::size_t max,
                                const char* expected, const char* remedy) {
      const std::string_view found = s3_xml::text_in(element);
      require(found.size() <= max, s3_xml::offset_of(element), expected,
              "one of " + std::to_string(found.size()) + " bytes: " + remedy);
      return std::string{found};
    };
    const bool is_encoded = s3_xml::text_in(root.child("EncodingType")) == "url";
    list_answer answer;
    for (const pugi::xml_node& contents : root.children("Contents")) {
      const pugi::xml_node key = contents.child("Key");
      s3_object object{
          short_text(key, 8192, "a key of at most 8192 bytes",
                     "which does not fit into a request: list with a prefix that excludes it"),
          0};
      require(!object.key.empty(), s3_xml::offset_of(contents), "the key of an object", "none");
      const auto size = whole_number(s3_xml::text_in(contents.child("Size")));
      require(size.has_value(), s3_xml::offset_of(contents), "the size of an object", "none");
      object.size = *size;
      if (is_encoded) {
        auto decoded = percent_decoded(object.key);
        require(decoded.has_value(), s3_xml::offset_of(key), "a percent-encoded key", object.key);
        object.key = *std::move(decoded);
      }
      require(answer.objects.empty() || answer.objects.back().key != object.key,
              s3_xml::offset_of(key), "each key once", "the previous key again");
      answer.objects.push_back(std::move(object));
    }
    const pugi::xml_node count = root.child("KeyCount");
    const auto stated = whole_number(s3_xml::text_in(count));
    require(!stated || *stated == answer.objects.size(), s3_xml::offset_of(count),
            "as many keys as KeyCount says",
            std::to_string(answer.objects.size()) + " in place of " +
                std::to_string(stated.value_or(0)));
    answer.next =
        short_text(root.child("NextContinuationToken"), 65536, "a token of at most 65536 bytes",
                   "which does not fit into a request: list with longer prefixes");
    const bool is_cut = s3_xml::text_in(root.child("IsTruncated")) == "true";
    require(is_cut == !answer.next.empty(), text.size(),
            "a token if and only if there is a next page",
            is_cut ? "none" : "one at the end of the listing");
    return answer;
  }
};

/// Returns the text of the element `name` directly below <Error> in an S3 error body. Returns "" if
/// the element is missing or contains characters other than letters, digits, dots and dashes. The
/// body may be truncated.
[[nodiscard]] inline std::string error_word(std::string_view body, const char* name) {
  const s3_xml xml{body};
  if (xml.root().name() != std::string_view{"Error"}) return {};
  const std::string_view word = s3_xml::text_in(xml.root().child(name));
  for (const char c : word) {
    const bool is_fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '.' || c == '-';
    if (!is_fine) return {};
  }
  return std::string{word.substr(0, 64)};
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
