// SPDX-License-Identifier: BSL-1.0
// A feed for Python with a C interface and DLPack tensors. bench/gpu_torch.py loads this library,
// so that PyTorch gets batches on a GPU without compiling anything.
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <penstock/cuda.hpp>
#include <penstock_ext/interop.hpp>
#include <penstock_ext/interop/shared_batch.hpp>

#include "gpu/checked_feed.hpp"

namespace ps = penstock;

namespace {

/// A feed of two epochs of digits in order. The stream of the feed differs from the consumer's
/// stream.
class feed_for_python {
 public:
  feed_for_python(std::uint64_t samples, std::size_t batch_size)
      : stream_(device_.make_stream()),
        loader_(gpu::digits{samples}, ps::sequential{}, device_,
                {.batch_size = batch_size, .workers = 2}),
        feed_(loader_, stream_, {.depth = 2}),
        range_(feed_.epochs(0, 2)) {}

  /// Returns the image and the label tensor of the next batch, for work on `consumer`, or null at
  /// the end.
  std::pair<ps::dlpack::unversioned_ptr, ps::dlpack::unversioned_ptr> next(
      ps::cuda_stream_ref consumer) {
    if (!at_) {
      at_.emplace(range_.begin());
    } else {
      ++*at_;
    }
    if (*at_ == range_.end()) return {};
    const auto batch = ps::share(std::move(**at_));
    return {ps::to_dlpack_unversioned<"image">(batch, consumer),
            ps::to_dlpack_unversioned<"label">(batch, consumer)};
  }

 private:
  using loader_type = ps::loader<gpu::digits, ps::sequential, ps::cuda_device>;
  using feed_type = ps::transfer<loader_type&>;
  using range_type = decltype(std::declval<feed_type&>().epochs(0, 2));

  ps::cuda_device device_;
  ps::cuda_stream stream_;
  loader_type loader_;
  feed_type feed_;
  range_type range_;
  std::optional<decltype(std::declval<range_type&>().begin())> at_;
};

std::string& last_error() {
  thread_local std::string text;
  return text;
}

/// Returns the result of `work`. If `work` throws, stores the message in `last_error` and returns
/// `otherwise`.
template <class Value, class Work>
Value guarded(Value otherwise, const Work& work) noexcept {
  try {
    return work();
  } catch (const std::exception& error) {
    last_error() = error.what();
  }
  return otherwise;
}

}  // namespace

extern "C" {

/// Returns a feed, or null on an error. The caller must close the feed with `penstock_feed_close`.
__attribute__((visibility("default"))) void* penstock_feed_open(std::uint64_t samples,
                                                                std::uint64_t batch_size) {
  return guarded<void*>(nullptr, [&] { return new feed_for_python{samples, batch_size}; });
}

/// Sets two tensors with DLPack's unversioned structure and returns 1. The deleters of the tensors
/// end the lease. Returns 0 at the end, and -1 on an error. `stream` is the consumer's stream, or 0
/// for the default stream.
__attribute__((visibility("default"))) int penstock_feed_next(
    void* feed, std::uintptr_t stream, ps::dlpack::unversioned_tensor** image,
    ps::dlpack::unversioned_tensor** label) {
  return guarded<int>(-1, [&] {
    auto made = static_cast<feed_for_python*>(feed)->next(reinterpret_cast<cudaStream_t>(stream));
    *image = made.first.release();
    *label = made.second.release();
    return *image == nullptr ? 0 : 1;
  });
}

/// Destroys a feed after waiting for work that still uses its slots.
__attribute__((visibility("default"))) void penstock_feed_close(void* feed) {
  delete static_cast<feed_for_python*>(feed);
}

/// Returns the message of the last error on this thread.
__attribute__((visibility("default"))) const char* penstock_feed_error() {
  return last_error().c_str();
}

}  // extern "C"
