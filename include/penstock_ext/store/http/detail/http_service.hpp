// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/core/version.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>
#include <penstock_ext/store/http/detail/object_url.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

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
  http_service(const http_service&) = delete;
  http_service& operator=(const http_service&) = delete;
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
