// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <penstock/threads/support/atomics.hpp>
#include <penstock_ext/store/byte_store.hpp>
#include <penstock_ext/store/http/detail/curl_handles.hpp>
#include <penstock_ext/store/http/detail/http_call.hpp>
#include <penstock_ext/store/http/detail/http_request.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/detail/object_url.hpp>
#include <penstock_ext/store/http/detail/reactor.hpp>
#include <penstock_ext/store/http/detail/request_plan.hpp>
#include <penstock_ext/store/http/http_options.hpp>
#include <penstock_ext/store/remote_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What stores over HTTP share: calls that wait for their requests. Thread-safe.
class http_client {
 public:
  /// Throws `option_error`, and `std::system_error` without a thread or a descriptor.
  http_client(const http_options& options, std::shared_ptr<const http_service> service)
      : options_(options) {
    require_sound(options);
    reactor_ = std::make_unique<http_reactor>(options, std::move(service));
  }
  http_client(const http_client&) = delete;
  http_client& operator=(const http_client&) = delete;
  ~http_client() {
    // In a child made by fork() there is no thread to end, and the connections are the parent's.
    if (!is_in_child()) return;
    static_cast<void>(reactor_.release());
    static_cast<void>(library_.release());
  }

  /// Reads `ranges`; `target_of(object)` says where an object is.
  template <class TargetOf>
  void read_many(std::span<const byte_range> ranges, const TargetOf& target_of) const {
    request_plan plan =
        plan_requests(ranges, options_.merge_gap, options_.largest_request,
                      [&](std::string_view object) { return target_of(object).shown(); });
    if (plan.requests.empty()) return;
    std::vector<http_target> targets;
    targets.reserve(plan.objects.size());
    for (const std::string& object : plan.objects) targets.push_back(target_of(object));
    const std::size_t count = plan.requests.size();
    const auto call = std::make_shared<http_call>(std::move(plan), count);
    std::vector<request_ptr> requests;
    requests.reserve(count);
    for (const planned_request& range : call->plan().requests) {
      requests.push_back(new_request(call, targets[range.object], range.object));
      requests.back()->range = range;
    }
    run(*call, requests, targets.front(), call->plan().requests.front().begin);
  }

  /// The size of the object `object`, which is at `target`, and its version.
  [[nodiscard]] object_state state_of(std::string_view object, const http_target& target) const {
    const auto call = single_call(object);
    std::vector<request_ptr> requests;
    requests.push_back(new_request(call, target, 0));
    const auto found = std::make_shared<object_version>();
    requests.back()->kind = request_kind::header;
    requests.back()->range = {0, 0, 1, 0, 0};
    requests.back()->version_found = found;
    run(*call, requests, target, 0);
    return {found->size.value_or(0), found->name()};
  }

  /// The whole body at `target`, at most 64 MiB.
  [[nodiscard]] std::string page(const http_target& target) const {
    const auto call = single_call("");
    std::vector<request_ptr> requests;
    requests.push_back(new_request(call, target, 0));
    const auto found = std::make_shared<std::string>();
    requests.back()->kind = request_kind::page;
    requests.back()->page = found;
    run(*call, requests, target, 0);
    return std::move(*found);
  }

  /// What has been done so far.
  [[nodiscard]] http_stats stats() const { return reactor_->stats(); }

 private:
  [[nodiscard]] bool is_in_child() const noexcept { return ::getpid() != process_; }

  [[nodiscard]] static std::shared_ptr<http_call> single_call(std::string_view object) {
    request_plan plan;
    plan.objects.emplace_back(object);
    return std::make_shared<http_call>(std::move(plan), 1);
  }

  [[nodiscard]] request_ptr new_request(const std::shared_ptr<http_call>& call,
                                        const http_target& target, std::size_t object) const {
    auto one = std::make_unique<http_request>();
    one->call = call;
    one->target = target;
    one->object = call->plan().objects[object];
    one->checks_etag = options_.check_etag;
    one->checks_modified = options_.check_modified;
    one->checks_sums = options_.check_sums;
    return one;
  }

  void run(http_call& call, std::vector<request_ptr>& requests, const http_target& first,
           std::uint64_t offset) const {
    if (is_in_child()) {
      throw std::logic_error("penstock: the thread of a store over HTTP is in process " +
                             std::to_string(process_) +
                             ", which made this one by fork(): make a store of its own here");
    }
    const deadline limit = deadline_in(options_.deadline);
    reactor_->submit(requests);
    bool is_done = false;
    try {
      is_done = call.wait_until(limit);
    } catch (...) {
      reactor_->wake();  // to end the call's other requests
      throw;
    }
    if (is_done) return;
    reactor_->wake();
    throw store_unreachable(first.shown(), offset, "an answer" + within(options_.deadline),
                            "none: the network is slow, or `deadline` is too short");
  }

  const ::pid_t process_ = ::getpid();
  const http_options options_;
  std::unique_ptr<const curl_library> library_ = std::make_unique<const curl_library>();
  std::unique_ptr<http_reactor> reactor_;
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
