// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <curl/curl.h>

#include <memory>
#include <new>
#include <string>

#include <penstock/core/error.hpp>

#if LIBCURL_VERSION_NUM < 0x075500
#error "penstock::http needs libcurl 7.85 or newer"
#endif

namespace penstock {
inline namespace PENSTOCK_ABI {
namespace detail {

/// libcurl's state of the process, for as long as this object is there. libcurl counts, and locks
/// since 7.84 wherever the compiler has atomics (the feature "threadsafe" of `curl --version`); so
/// no state of our own is needed. Where it does not lock, a program calls `curl_global_init` itself
/// before its first thread.
class curl_library {
 public:
  curl_library() {
    if (::curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
      throw error("curl_global_init fails: libcurl or its TLS library can't be used here");
    }
  }
  curl_library(const curl_library&) = delete;
  curl_library& operator=(const curl_library&) = delete;
  ~curl_library() { ::curl_global_cleanup(); }
};

struct free_curl_easy {
  void operator()(CURL* easy) const noexcept { ::curl_easy_cleanup(easy); }
};
struct free_curl_list {
  void operator()(curl_slist* list) const noexcept { ::curl_slist_free_all(list); }
};

/// One transfer at a time.
using curl_easy = std::unique_ptr<CURL, free_curl_easy>;
/// Lines of a request's header.
using curl_list = std::unique_ptr<curl_slist, free_curl_list>;

/// Appends a line.
inline void append(curl_list& list, const std::string& line) {
  curl_slist* const longer = ::curl_slist_append(list.get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  static_cast<void>(list.release());
  list.reset(longer);
}

/// Sets an option; throws `error` for one that this libcurl was built without.
template <class Value>
void set(CURL* easy, ::CURLoption option, const Value& value) {
  const ::CURLcode code = ::curl_easy_setopt(easy, option, value);
  if (code == CURLE_OUT_OF_MEMORY) throw std::bad_alloc();
  if (code != CURLE_OK) {
    throw error("libcurl refuses option " + std::to_string(static_cast<int>(option)) + ": " +
                ::curl_easy_strerror(code));
  }
}

}  // namespace detail
}  // namespace PENSTOCK_ABI
}  // namespace penstock
