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

/// A percent-encoded request URL.
struct http_target {
  std::string origin;  ///< "https://host:port"
  std::string path;    ///< "/folder/object"
  std::string query;   ///< the part after "?", which may be secret

  /// Returns the complete URL.
  [[nodiscard]] std::string url() const {
    return query.empty() ? origin + path : origin + path + '?' + query;
  }
  /// Returns the URL without the query, for messages.
  [[nodiscard]] std::string shown() const { return origin + path; }
  /// Returns "host:port", as in the Host header.
  [[nodiscard]] std::string_view host() const {
    return std::string_view{origin}.substr(origin.find("://") + 3);
  }
  /// Returns true if the scheme is https.
  [[nodiscard]] bool is_secure() const { return origin.starts_with("https:"); }
};

/// Returns `text` with every byte as %XX, except letters, digits, "-._~" and the bytes in `kept`
/// (RFC 3986).
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

/// Throws `file_unreadable` if no request can contain the object name. Unless `takes_any_name` is
/// true, also throws if the name starts with a slash, or has "." or ".." as a component. Servers
/// and proxies interpret such paths differently.
inline void require_object(std::string_view store, std::string_view object, bool takes_any_name) {
  const auto reject = [&](const char* found) {
    throw file_unreadable(std::string{store} + '/' + std::string{object}, 0,
                          "the name of an object below the store", found);
  };
  constexpr std::size_t longest = 65'536;  // libcurl accepts URLs of up to 8 MB
  if (object.size() > longest) {
    throw file_unreadable(
        std::string{store} + '/' + std::string{object.substr(0, 100)} + "...", 0,
        "the name of an object of at most " + std::to_string(longest) + " bytes",
        "one of " + std::to_string(object.size()) + " bytes, which does not fit into a request");
  }
  if (object.empty()) reject("an empty name");
  if (takes_any_name) return;
  if (object.front() == '/') reject("a name that starts with a slash: remove the slash");
  const std::string framed = '/' + std::string{object} + '/';
  if (framed.find("/./") != std::string::npos || framed.find("/../") != std::string::npos) {
    reject("a name with '.' or '..' between its slashes");
  }
}

/// Parses the store URL `url`. The resulting path has no trailing slash. Throws `option_error` for
/// `option`. The message never contains parts of the URL that may be secret.
[[nodiscard]] inline http_target parse_store_url(std::string_view url, const char* option) {
  const auto require = [option](bool holds, const char* problem) {
    if (!holds) throw option_error(option, problem);
  };
  for (const char c : url) {
    require(
        static_cast<unsigned char>(c) > 0x20 && c != 0x7f && c != '\\',
        "must be percent-encoded, because it contains a space, a backslash or a control character");
  }
  const std::string start = in_lower_case(url.substr(0, 8));
  const std::size_t scheme = start == "https://" ? 8 : start.starts_with("http://") ? 7 : 0;
  require(scheme != 0, "must start with https:// or http://");
  require(url.find('#') == std::string_view::npos, "must not have a '#'");
  const std::size_t question = (std::min)(url.find('?'), url.size());
  const std::string_view place = url.substr(0, question);
  const std::size_t slash = (std::min)(place.find('/', scheme), place.size());
  const std::string_view host = place.substr(scheme, slash - scheme);
  require(!host.empty() && host.front() != ':', "must name a host");
  require(host.find('@') == std::string_view::npos,
          "must not have a user and a password: set an Authorization line in `headers`");
  http_target target{start.substr(0, scheme) + std::string{host}, std::string{place.substr(slash)},
                     std::string{question < url.size() ? url.substr(question + 1) : ""}};
  while (target.path.ends_with('/')) target.path.pop_back();
  return target;
}

/// Returns the URL of `object` in the store at `store`. Throws the same errors as `require_object`.
[[nodiscard]] inline http_target object_target(const http_target& store, std::string_view object,
                                               bool takes_any_name) {
  require_object(store.shown(), object, takes_any_name);
  return {store.origin, store.path + '/' + percent_encoded(object, "/"), store.query};
}

/// The interpretation of an error response.
struct service_error {
  std::string code = {};      ///< server error code for messages, never a secret
  std::string remedy = {};    ///< advice for the user
  bool is_transient = false;  ///< true if a retry may succeed, regardless of the status
  bool is_denied = false;     ///< true if the error concerns the credentials
  bool is_missing = false;    ///< true if the object does not exist
};

/// A kind of server: the headers it requires, and the meaning of its errors. The reactor thread
/// calls `headers` for each attempt, because a signature is valid only for minutes.
class http_service {
 public:
  explicit http_service(std::vector<std::string> headers) : headers_(std::move(headers)) {}
  http_service(http_service&&) = delete;
  virtual ~http_service() = default;

  /// Returns the headers of a request.
  [[nodiscard]] virtual std::vector<std::string> headers(std::string_view /*method*/,
                                                         const http_target& /*target*/) const {
    return headers_;
  }

  /// Returns true if "/", "." and ".." have no special meaning in object names.
  [[nodiscard]] virtual bool takes_any_name() const noexcept { return false; }

  /// Interprets a response with a failure status. `body` is the start of the body.
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
