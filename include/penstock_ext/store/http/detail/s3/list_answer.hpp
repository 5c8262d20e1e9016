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

/// An XML text as S3 answers with, read by pugixml. Document types and CDATA are refused, and so is
/// what is deeper or has more markup than any answer of S3, so that memory is bounded.
class s3_xml {
 public:
  static constexpr int deepest = 16;
  static constexpr std::size_t most_markup = std::size_t{1} << 20U;

  /// Reads `text`. What is wrong with it is in `problem()`; what stands before that can be read.
  explicit s3_xml(std::string_view text) {
    if (static_cast<std::size_t>(std::count(text.begin(), text.end(), '<') +
                                 std::count(text.begin(), text.end(), '=')) > most_markup) {
      problem_ = "more than " + std::to_string(most_markup) + " signs '<' and '='";
      return;
    }
    if (const std::size_t bad = unsound_reference(text); bad != std::string_view::npos) {
      problem_ = "a reference to no character";
      offset_ = bad;
    }
    constexpr unsigned options = pugi::parse_escapes | pugi::parse_cdata | pugi::parse_doctype |
                                 pugi::parse_ws_pcdata_single;
    const pugi::xml_parse_result result =
        document_.load_buffer(text.data(), text.size(), options, pugi::encoding_utf8);
    if (result.status == pugi::status_out_of_memory) throw std::bad_alloc();
    if (!problem_.empty()) return;
    refusal refused;
    if (!result) {
      problem_ = result.description();
      // pugixml counts the zero that it puts at the end.
      offset_ = (std::min)(static_cast<std::size_t>(result.offset), text.size());
    } else if (!document_.traverse(refused)) {
      problem_ = refused.why;
      offset_ = offset_of(refused.where);
    }
  }

  /// What is wrong; "" for nothing.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  /// Where it is, in bytes.
  [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
  /// The first element.
  [[nodiscard]] pugi::xml_node root() const { return document_.document_element(); }

  /// Where in the text a node is, in bytes; 0 for none.
  [[nodiscard]] static std::size_t offset_of(const pugi::xml_node& node) {
    return static_cast<std::size_t>((std::max)(node.offset_debug(), std::ptrdiff_t{0}));
  }

  /// The text of an element that has nothing else in it, and of none "".
  [[nodiscard]] static std::string_view text_in(const pugi::xml_node& element) {
    const pugi::xml_node text = element.first_child();
    return text.type() == pugi::node_pcdata && !text.next_sibling() ? text.value() : "";
  }

 private:
  struct refusal final : pugi::xml_tree_walker {
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

  // Where in `text` a reference to no character is, which pugixml takes for plain text.
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

/// What %XX and '+' stand for; nothing for a '%' without two digits.
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

/// One page of a bucket's listing: the answer to ListObjectsV2.
struct list_answer {
  std::vector<s3_object> objects = {};
  std::string next = {};  ///< asks for the page after it; "" where this is the last one

  /// Reads `text`, the answer of `url`, which errors name. Throws `bad_response` with the byte in
  /// the answer.
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
    // S3 has keys of 1024 bytes, each three where it is encoded; libcurl has URLs of 8 MB.
    const auto short_text = [&](const pugi::xml_node& element, std::size_t most,
                                const char* expected, const char* remedy) {
      const std::string_view found = s3_xml::text_in(element);
      require(found.size() <= most, s3_xml::offset_of(element), expected,
              "one of " + std::to_string(found.size()) + " bytes: " + remedy);
      return std::string{found};
    };
    const bool is_encoded = s3_xml::text_in(root.child("EncodingType")) == "url";
    list_answer answer;
    for (const pugi::xml_node& contents : root.children("Contents")) {
      const pugi::xml_node key = contents.child("Key");
      s3_object object{short_text(key, 8192, "a key of at most 8192 bytes",
                                  "no request can name it: list by a prefix that leaves it out"),
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
      answer.objects.push_back(std::move(object));
    }
    answer.next =
        short_text(root.child("NextContinuationToken"), 65536, "a token of at most 65536 bytes",
                   "no request can hold it: list by longer prefixes");
    const bool is_cut = s3_xml::text_in(root.child("IsTruncated")) == "true";
    require(is_cut == !answer.next.empty(), text.size(),
            "a token for the next page where there is one",
            is_cut ? "none" : "one at the end of the listing");
    return answer;
  }
};

/// The text of the element `name` right below <Error>, what S3 says in an error's body; "" where
/// it is not there or has other characters than letters, digits, dots and dashes. The body may be
/// cut.
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
