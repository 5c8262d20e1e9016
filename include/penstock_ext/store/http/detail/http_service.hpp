// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/error.hpp>
#include <penstock/core/version.hpp>
#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What a request is made of. All of it is percent-encoded.
struct http_target {
  std::string origin;  ///< "https://host:port"
  std::string path;    ///< "/folder/object"
  std::string query;   ///< after the "?"; may be secret

  /// What libcurl is given.
  [[nodiscard]] std::string url() const {
    return query.empty() ? origin + path : origin + path + '?' + query;
  }
  /// For messages: without the query.
  [[nodiscard]] std::string shown() const { return origin + path; }
  /// "host:port", as the header Host has it.
  [[nodiscard]] std::string_view host() const {
    return std::string_view{origin}.substr(origin.find("://") + 3);
  }
  /// Whether it is https.
  [[nodiscard]] bool is_secure() const { return origin.starts_with("https:"); }
};

/// `text` with all bytes but letters, digits, "-._~" and those of `kept` as %XX (RFC 3986).
[[nodiscard]] inline std::string percent_encoded(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const bool is_plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
    if (is_plain || kept.find(c) != std::string_view::npos) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += "0123456789ABCDEF"[byte >> 4U];
      out += "0123456789ABCDEF"[byte & 15U];
    }
  }
  return out;
}

/// Throws `file_unreadable` for a name that leads out of its store, or nowhere: an empty one, one
/// that starts at the root, one with "." or ".." between its slashes. Servers and proxies take such
/// paths apart in different ways.
inline void require_object(std::string_view store, std::string_view object) {
  const auto refuse = [&](const char* found) {
    throw file_unreadable(std::string{store} + '/' + std::string{object}, 0,
                          "the name of an object below the store", found);
  };
  constexpr std::size_t longest = 65'536;  // libcurl has URLs of 8 MB
  if (object.size() > longest) {
    throw file_unreadable(
        std::string{store} + '/' + std::string{object.substr(0, 100)} + "...", 0,
        "the name of an object of at most " + std::to_string(longest) + " bytes",
        "one of " + std::to_string(object.size()) + " bytes: no request can hold it");
  }
  if (object.empty()) refuse("an empty name");
  if (object.front() == '/') refuse("a name that starts with a slash: leave it out");
  const std::string framed = '/' + std::string{object} + '/';
  if (framed.find("/./") != std::string::npos || framed.find("/../") != std::string::npos) {
    refuse("a name with '.' or '..' between its slashes");
  }
}

/// Takes `url`, the place of a store, apart; its path has no slash at the end. Throws
/// `option_error` for `option`, which never shows what may be secret in the URL.
[[nodiscard]] inline http_target parse_store_url(std::string_view url, const char* option) {
  const auto require = [option](bool holds, const char* problem) {
    if (!holds) throw option_error(option, problem);
  };
  for (const char c : url) {
    require(static_cast<unsigned char>(c) > 0x20 && c != 0x7f && c != '\\',
            "must be percent-encoded: it has a blank, a backslash or a control character");
  }
  const std::size_t scheme = url.starts_with("https://") ? 8 : url.starts_with("http://") ? 7 : 0;
  require(scheme != 0, "must start with https:// or http://");
  require(url.find('#') == std::string_view::npos, "must not have a '#'");
  const std::size_t question = (std::min)(url.find('?'), url.size());
  const std::string_view place = url.substr(0, question);
  const std::size_t slash = (std::min)(place.find('/', scheme), place.size());
  const std::string_view host = place.substr(scheme, slash - scheme);
  require(!host.empty() && host.front() != ':', "must name a host");
  require(host.find('@') == std::string_view::npos,
          "must not have a user and a password: give an Authorization line in `headers`");
  http_target target{std::string{place.substr(0, slash)}, std::string{place.substr(slash)},
                     std::string{question < url.size() ? url.substr(question + 1) : ""}};
  while (target.path.ends_with('/')) target.path.pop_back();
  return target;
}

/// The object `object` of the store at `store`. Throws as `require_object`.
[[nodiscard]] inline http_target object_target(const http_target& store, std::string_view object) {
  require_object(store.shown(), object);
  return {store.origin, store.path + '/' + percent_encoded(object, "/"), store.query};
}

/// What an error's body means to a service.
struct service_error {
  std::string code = {};      ///< what it says, for messages; never what is secret
  std::string remedy = {};    ///< what to do
  bool is_transient = false;  ///< a repeated request may succeed, whatever the status
  bool is_denied = false;     ///< it is about the credentials
  bool is_missing = false;    ///< there is no such object
};

/// How one kind of server wants to be asked, and what its errors mean. Called on the thread of the
/// store's requests, once for each attempt: a signature holds for minutes only.
class http_service {
 public:
  explicit http_service(std::vector<std::string> headers) : headers_(std::move(headers)) {}
  http_service(http_service&&) = delete;
  virtual ~http_service() = default;

  /// The lines that go with a request.
  [[nodiscard]] virtual std::vector<std::string> headers(std::string_view /*method*/,
                                                         const http_target& /*target*/) const {
    return headers_;
  }

  /// What an answer that is no success means; `body` is the start of it.
  [[nodiscard]] virtual service_error error_of(const http_answer& /*answer*/,
                                               std::string_view /*body*/) const {
    return {};
  }

 private:
  std::vector<std::string> headers_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
