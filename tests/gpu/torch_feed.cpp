// SPDX-License-Identifier: BSL-1.0
// A feed for Python, by plain functions and DLPack: what bench/gpu_torch.py loads, so that PyTorch
// gets batches on a GPU without anything that is compiled there.
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

/// Two epochs of digits in order. The stream of the feed itself is not the consumer's.
class feed_for_python {
 public:
  feed_for_python(std::uint64_t samples, std::size_t batch_size)
      : stream_(device_.make_stream()),
        loader_(gpu::digits{samples}, ps::sequential{}, device_,
                {.batch_size = batch_size, .workers = 2}),
        feed_(loader_, stream_, {.depth = 2}),
        range_(feed_.epochs(0, 2)) {}

  /// The next batch's image and label, for work on `consumer`; none at the end.
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

/// What `work` returns, or `otherwise`, with the reason in `last_error`.
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

/// A feed, to be given back to `penstock_feed_close`; null for an error.
__attribute__((visibility("default"))) void* penstock_feed_open(std::uint64_t samples,
                                                                std::uint64_t batch_size) {
  return guarded<void*>(nullptr, [&] { return new feed_for_python{samples, batch_size}; });
}

/// 1 and two tensors of DLPack's older structure, whose deleters end the lease; 0 at the end; -1
/// for an error. `stream` is the consumer's; 0 for the default stream.
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

/// Waits for what still uses its slots.
__attribute__((visibility("default"))) void penstock_feed_close(void* feed) {
  delete static_cast<feed_for_python*>(feed);
}

/// Why the last call of this thread has failed.
__attribute__((visibility("default"))) const char* penstock_feed_error() {
  return last_error().c_str();
}

}  // extern "C"
