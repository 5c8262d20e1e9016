// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock_ext/store/http/detail/answer.hpp>
#include <penstock_ext/store/http/detail/s3/xml_reader.hpp>
#include <penstock_ext/store/http/s3_options.hpp>
#include <penstock_ext/store/remote_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What %XX and '+' stand for; nothing for a '%' without two digits.
[[nodiscard]] inline std::optional<std::string> percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const int high = digit(text[i + 1]);
    const int low = digit(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
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
    list_answer answer;
    xml_reader reader{text};
    const auto require = [&](bool holds, const char* expected, const std::string& found) {
      if (!holds) throw bad_response(url, reader.position(), expected, found);
    };
    // S3 has keys of 1024 bytes, each three where it is encoded; libcurl has URLs of 8 MB.
    const auto require_short = [&](const char* expected, std::size_t most, std::size_t found,
                                   const char* remedy) {
      require(found <= most, expected, "one of " + std::to_string(found) + " bytes: " + remedy);
    };
    bool is_encoded = false;
    bool is_cut = false;
    s3_object object;
    bool has_size = false;
    while (true) {
      const xml_reader::step step = reader.next();
      if (step == xml_reader::step::done) break;
      require(step != xml_reader::step::wrong, "the XML of a bucket's listing", "another text");
      const auto& path = reader.path();
      require(path.front() == "ListBucketResult", "ListBucketResult", std::string{path.front()});
      if (step == xml_reader::step::begin) {
        if (path.size() == 2 && path[1] == "Contents") {
          object = {};
          has_size = false;
        }
        continue;
      }
      const std::string& content = reader.content();
      if (path.size() == 3 && path[1] == "Contents") {
        if (path[2] == "Key") {
          require_short("a key of at most 8192 bytes", 8192, content.size(),
                        "no request can name it: list by a prefix that leaves it out");
          object.key = content;
        }
        if (path[2] == "Size") {
          const auto size = whole_number(content);
          has_size = size.has_value();
          object.size = size.value_or(0);
        }
      } else if (path.size() == 2 && path[1] == "Contents") {
        require(!object.key.empty(), "the key of an object", "none");
        require(has_size, "the size of an object", "none");
        answer.objects.push_back(object);
      } else if (path.size() == 2 && path[1] == "IsTruncated") {
        is_cut = content == "true";
      } else if (path.size() == 2 && path[1] == "NextContinuationToken") {
        require_short("a token of at most 65536 bytes", 65536, content.size(),
                      "no request can hold it: list by longer prefixes");
        answer.next = content;
      } else if (path.size() == 2 && path[1] == "EncodingType") {
        is_encoded = content == "url";
      }
    }
    require(is_cut == !answer.next.empty(), "a token for the next page where there is one",
            is_cut ? "none" : "one at the end of the listing");
    if (!is_encoded) return answer;
    for (s3_object& one : answer.objects) {
      auto decoded = percent_decoded(one.key);
      require(decoded.has_value(), "a percent-encoded key", one.key);
      one.key = *std::move(decoded);
    }
    return answer;
  }
};

/// The text of the element `name` right below <Error>, what S3 says in an error's body; "" where
/// it is not there or has other characters than letters, digits, dots and dashes.
[[nodiscard]] inline std::string error_word(std::string_view body, std::string_view name) {
  xml_reader reader{body};
  while (true) {
    const xml_reader::step step = reader.next();
    if (step == xml_reader::step::done || step == xml_reader::step::wrong) return {};
    const auto& path = reader.path();
    if (step != xml_reader::step::end || path.size() != 2 || path[0] != "Error" ||
        path[1] != name) {
      continue;
    }
    for (const char c : reader.content()) {
      const bool is_fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '.' || c == '-';
      if (!is_fine) return {};
    }
    return reader.content().substr(0, 64);
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
