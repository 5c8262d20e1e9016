// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <penstock_ext/files/file_error.hpp>
#include <penstock_ext/store/http/detail/answer.hpp>
#include <penstock_ext/store/http/detail/body_sum.hpp>
#include <penstock_ext/store/http/detail/curl_handles.hpp>
#include <penstock_ext/store/http/detail/http_call.hpp>
#include <penstock_ext/store/http/detail/http_service.hpp>
#include <penstock_ext/store/http/detail/object_version.hpp>
#include <penstock_ext/store/http/detail/request_plan.hpp>
#include <penstock_ext/store/remote_error.hpp>

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// What an exchange wants of the server.
enum class http_wish {
  range,   ///< bytes of an object, for the parts of a plan
  header,  ///< HEAD: the size of an object
  probe,   ///< the first byte, for the size in Content-Range: where HEAD does not tell
  page,    ///< a whole body, as listings are
};

/// One request with all its attempts. The reactor's, once it has been handed over.
struct http_exchange {
  static constexpr std::size_t longest_page = std::size_t{64} << 20U;
  static constexpr std::size_t longest_error = 8192;

  std::shared_ptr<http_call> call;
  http_target target;
  std::string object;  ///< its name in the store
  http_wish wish = http_wish::range;
  planned_request range = {};
  bool checks_etag = true;
  bool checks_modified = true;
  bool checks_sums = true;
  std::shared_ptr<std::string> page = {};              ///< where a page goes
  std::shared_ptr<object_version> version_found = {};  ///< where a size goes

  unsigned failures = 0;
  std::string unmodified_since = {};  ///< goes with the next attempt; "": nothing does

  // Of the attempt under way.
  curl_easy easy = {};
  curl_list lines = {};
  http_answer answer = {};
  std::uint64_t received = 0;        ///< bytes of the body
  std::optional<body_sum> sum = {};  ///< of the body, where the server has said it
  std::string error_body = {};       ///< the first bytes of an error's body
  std::exception_ptr refusal = {};   ///< why the body was not taken
  bool is_enough = false;            ///< the body was not taken, and need not be
  std::chrono::steady_clock::time_point last_byte = {};
  std::array<char, CURL_ERROR_SIZE> curl_words = {};

  [[nodiscard]] std::uint64_t size() const noexcept { return range.end - range.begin; }
  [[nodiscard]] const char* method() const noexcept {
    return wish == http_wish::header ? "HEAD" : "GET";
  }

  /// An error about the object.
  template <class E>
  [[nodiscard]] std::exception_ptr problem(std::string expected, std::string found) const {
    return std::make_exception_ptr(
        E(target.shown(), range.begin, std::move(expected), std::move(found)));
  }

  /// What was wanted, for messages.
  [[nodiscard]] std::string wanted() const {
    if (wish == http_wish::page) return "a listing";
    if (wish != http_wish::range) return "the size of the object";
    return "bytes " + std::to_string(range.begin) + " to " + std::to_string(range.end);
  }

  /// Readies it for the next attempt.
  void begin() {
    answer = {};
    received = 0;
    sum.reset();
    error_body.clear();
    refusal = {};
    is_enough = false;
    curl_words[0] = '\0';
    last_byte = std::chrono::steady_clock::now();
    if (page) page->clear();
  }

  /// Takes a piece of a body; false ends the attempt.
  [[nodiscard]] bool take(std::span<const std::byte> bytes) {
    last_byte = std::chrono::steady_clock::now();
    const std::uint64_t position = received;
    received += bytes.size();
    const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    if (answer.status != 200 && answer.status != 206) {
      error_body.append(text.substr(0, longest_error - error_body.size()));
      return true;
    }
    if (wish == http_wish::page) {
      if (page->size() + text.size() > longest_page) {
        refusal = problem<bad_response>("a listing of at most 64 MiB", "a longer one");
        return false;
      }
      page->append(text);
      return true;
    }
    if (wish != http_wish::range) {
      // A server without ranges sends all of the object.
      is_enough = true;
      return answer.status == 206 && received <= 1;
    }
    if (position == 0) refusal = wrong_range();
    if (!refusal && received > size()) {
      refusal = problem<bad_response>(wanted(), "a body that goes on after them");
    }
    if (refusal) return false;
    if (position == 0 && checks_sums) {
      if (auto said = answer.sum_of_body()) sum.emplace(std::move(*said));
    }
    if (sum) sum->add(bytes);
    if (call->deliver(range, range.begin + position, bytes)) return true;
    is_enough = true;
    return false;
  }

  /// Why the body of this answer is not the range that was asked for; nothing where it is.
  [[nodiscard]] std::exception_ptr wrong_range() const {
    if (answer.status == 206) {
      if (!answer.range || answer.range->begin == answer.range->end) {
        return problem<bad_response>(
            "a Content-Range for " + wanted(),
            answer.has_range ? "one that can't be read" : "206 Partial Content without one");
      }
      const content_range& said = *answer.range;
      if (said.total && *said.total < range.end) {
        return problem<file_truncated>(wanted(),
                                       "an object of " + std::to_string(*said.total) + " bytes");
      }
      if (said.begin != range.begin || said.end != range.end) {
        return problem<bad_response>(wanted(), "Content-Range: bytes " +
                                                   std::to_string(said.begin) + " to " +
                                                   std::to_string(said.end));
      }
      return {};
    }
    // All of the object: right only where that is what was asked for.
    if (range.begin == 0 && answer.length.value_or(range.end) == range.end) return {};
    if (answer.length && *answer.length < range.end) {
      return problem<file_truncated>(wanted(),
                                     "an object of " + std::to_string(*answer.length) + " bytes");
    }
    return problem<bad_response>(
        wanted(), "the whole object: the server has no ranges, without which nothing can be read");
  }

  /// Whether a part of an object came whose version nothing but the size tells.
  [[nodiscard]] bool is_unversioned(const object_version& said) const noexcept {
    return wish == http_wish::range && said.etag.empty() && said.modified.empty() &&
           !(said.size && size() == *said.size);
  }

  /// What the answer says about the object.
  [[nodiscard]] object_version version() const {
    object_version said;
    if (answer.status == 206 || answer.status == 416) {
      if (answer.range) said.size = answer.range->total;
    } else if (answer.status == 200 && wish != http_wish::page) {
      said.size = answer.length;
    }
    if (checks_etag) said.etag = object_version::kept(answer.etag);
    if (checks_modified) said.modified = object_version::kept(answer.modified);
    return said;
  }
};

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
