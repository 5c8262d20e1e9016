// SPDX-License-Identifier: BSL-1.0
#include <penstock_ext/image/nvimgcodec/nvimgcodec_batch.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <penstock/device/cpu_device.hpp>
#include <penstock_ext/image/nvimgcodec/nvimgcodec_decoder.hpp>

#include "ext/fake_nvimgcodec/fake_nvimgcodec.hpp"
#include "support/catch.hpp"
#include "support/error_of.hpp"
#include "support/has.hpp"

namespace ps = penstock;

namespace {

using backend = ps::nvimgcodec_backend;

// An arbitrary stream handle. The fake nvImageCodec passes the handle to the allocators, but queues
// no work on it.
const cudaStream_t some_stream = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x1234});

// Resets the fake nvImageCodec for a test. The destructor checks that all objects were destroyed.
struct fresh_fake {
  fresh_fake() { test::the_fake() = {}; }
  fresh_fake(const fresh_fake&) = delete;
  fresh_fake& operator=(const fresh_fake&) = delete;
  ~fresh_fake() { CHECK(test::the_fake().alive == 0); }
};

// One image per word; see `fake_nvimgcodec`.
class words {
 public:
  explicit words(const std::vector<std::string>& all, const ps::image_box& box = {0, 0, {2, 2}})
      : values_(all.size() * 12, '-') {
    for (const std::string& word : all) texts_.push_back("P6\n" + word);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto* begin = reinterpret_cast<const std::byte*>(texts_[i].data());
      images.push_back({{begin, texts_[i].size()},
                        texts_[i],
                        box,
                        {values_.data() + i * 12, box.size, 3, box.size.width * 3}});
    }
  }
  words(const words&) = delete;
  words& operator=(const words&) = delete;

  // Returns the first value of an image, which is a letter.
  [[nodiscard]] char letter(std::size_t i) const { return static_cast<char>(values_[i * 12]); }

  std::vector<ps::nvimgcodec_image> images;

 private:
  std::vector<std::string> texts_;
  std::vector<std::uint8_t> values_;
};

}  // namespace

TEST_CASE("each back end gets the images that earlier back ends could not decode",
          "[nvimgcodec][promise:exact-17]") {
  const fresh_fake clean;
  ps::nvimgcodec_batch decoder{{.device = 3}};
  words batch{{"ghc", "hc", "c", "g"}};
  const auto results = decoder.decode(batch.charts, some_stream);
  const auto device = NVIMGCODEC_IMAGE_BUFFER_KIND_STRIDED_DEVICE;
  CHECK((test::the_fake().calls ==
         std::vector<test::fake_call>{
             {NVIMGCODEC_BACKEND_KIND_GPU_ONLY, 4, 3, device, some_stream, 0},
             {NVIMGCODEC_BACKEND_KIND_HYBRID_CPU_GPU, 2, 3, device, some_stream, 0},
             {NVIMGCODEC_BACKEND_KIND_CPU_ONLY, 1, 3, device, some_stream, 0}}));
  CHECK(results[0].backend == backend::gpu);
  CHECK(results[1].backend == backend::hybrid);
  CHECK(results[2].backend == backend::cpu);
  CHECK(results[3].backend == backend::gpu);
  for (std::size_t i = 0; i < 4; ++i) CHECK(batch.letter(i) == "ghcg"[i]);
  CHECK(decoder.backend() == backend::any);

  test::the_fake().calls.clear();
  words other{{"g", "gc"}, {1, 0, {1, 2}}};
  decoder.decode(other.charts, some_stream);
  CHECK(test::the_fake().calls.size() == 1);
  CHECK(test::the_fake().calls[0].regions == 2);
  CHECK(decoder.backend() == backend::gpu);
}

TEST_CASE("a back end is made when the first image is left for it, and once", "[nvimgcodec]") {
  const fresh_fake clean;
  ps::nvimgcodec_batch decoder{{.device = 0}};
  CHECK(test::the_fake().made == "g");
  words easy{{"g", "gh"}};
  decoder.decode(easy.charts, some_stream);
  CHECK(test::the_fake().made == "g");
  for (int i = 0; i < 2; ++i) {
    words harder{{"g", "h"}};
    decoder.decode(harder.charts, some_stream);
    CHECK(test::the_fake().made == "gh");
  }
  test::the_fake().missing = "c";  // later decoders of this kind cannot be created
  words hardest{{"c"}};
  CHECK_THROWS_AS(decoder.decode(hardest.charts, some_stream), ps::image_corrupt);
  CHECK(test::the_fake().made == "gh");
}

TEST_CASE("a back end that is required decodes, or the image fails",
          "[nvimgcodec][promise:exact-17][fault:files-14]") {
  const fresh_fake clean;
  test::the_fake().undecoded = NVIMGCODEC_PROCESSING_STATUS_BACKEND_UNSUPPORTED;
  ps::nvimgcodec_batch decoder{{.device = 0, .backend = backend::hybrid}};
  words batch{{"gh", "gc"}};
  const auto problem =
      test::error_of<ps::image_unsupported>([&] { decoder.decode(batch.charts, some_stream); });
  CHECK(problem.path() == "P6\ngc");
  CHECK(test::has(problem.expected(), "back end hybrid"));
  CHECK(decoder.results()[0].backend == backend::hybrid);
  CHECK(test::the_fake().calls.size() == 1);
  CHECK(batch.letter(1) == '-');

  CHECK_THROWS_AS(decoder.decode(batch.charts), std::logic_error);  // the call has no stream
  CHECK(test::the_fake().calls.size() == 1);
}

TEST_CASE("kinds of TIFF that nvImageCodec decodes wrongly are rejected by their header",
          "[nvimgcodec][fault:files-14]") {
  const fresh_fake clean;
  const ps::nvimgcodec_decoder decoder;
  const std::string word = "II*" + std::string(1, '\0') + "c";
  const std::span tiff = std::as_bytes(std::span{word});
  CHECK(decoder.info(tiff, "a.tif").channels == 3);
  test::the_fake().channels = 2;
  CHECK(test::error_of<ps::image_unsupported>([&] { (void)decoder.info(tiff, "a.tif"); }).path() ==
        "a.tif");
  test::the_fake().channels = 1;
  CHECK(decoder.info(tiff, "a.tif").channels == 1);
  // The same status as for palette images.
  test::the_fake().samples = NVIMGCODEC_SAMPLE_DATA_TYPE_UINT16;
  CHECK(decoder.info(tiff, "a.tif").channels == 1);
  test::the_fake().samples = NVIMGCODEC_SAMPLE_DATA_TYPE_FLOAT32;
  CHECK_THROWS_AS(decoder.info(tiff, "a.tif"), ps::image_unsupported);
  const std::string other = "P6\nc";
  CHECK(decoder.info(std::as_bytes(std::span{other}), "a.ppm").channels == 1);
  test::the_fake().header = NVIMGCODEC_STATUS_CODESTREAM_UNSUPPORTED;
  CHECK_THROWS_AS(decoder.info(std::as_bytes(std::span{other}), "a.ppm"), ps::image_unsupported);
  test::the_fake().header = NVIMGCODEC_STATUS_BAD_CODESTREAM;
  CHECK_THROWS_AS(decoder.info(tiff, "a.tif"), ps::image_corrupt);
}

TEST_CASE("missing back ends are skipped, and it is an error if none is left",
          "[nvimgcodec][fault:files-14]") {
  const fresh_fake clean;
  test::the_fake().missing = "gh";
  {
    ps::nvimgcodec_batch decoder{{.device = 0}};
    words batch{{"ghc"}};
    CHECK(decoder.decode(batch.charts, some_stream)[0].backend == backend::cpu);
  }
  const auto gpu = test::error_of<ps::nvimgcodec_unavailable>(
      [] { ps::nvimgcodec_batch{{.device = 0, .backend = backend::gpu}}; });
  CHECK(test::has(gpu.what(), "gpu (status 8)"));
  test::the_fake().missing = "ghc";
  CHECK_THROWS_AS(ps::nvimgcodec_batch{{.device = 0}}, ps::nvimgcodec_unavailable);
  CHECK_THROWS_AS(ps::nvimgcodec_batch{}, ps::nvimgcodec_unavailable);
  test::the_fake().loading = NVIMGCODEC_STATUS_INTERNAL_ERROR;
  const auto load = test::error_of<ps::nvimgcodec_error>([] { ps::nvimgcodec_decoder{}; });
  CHECK(test::has(load.what(), "nvimgcodecInstanceCreate gave status 8"));
}

TEST_CASE("if nvImageCodec fails on a whole batch, no image is blamed",
          "[nvimgcodec][fault:files-14]") {
  const fresh_fake clean;
  ps::nvimgcodec_batch decoder{{.device = 0}};
  words batch{{"ghc", "x"}};
  test::the_fake().waiting = NVIMGCODEC_STATUS_EXTENSION_CUDA_CALL_ERROR;
  const auto problem =
      test::error_of<ps::nvimgcodec_error>([&] { decoder.decode(batch.charts, some_stream); });
  CHECK(test::has(problem.what(), "nvimgcodecFutureWaitForAll gave status 21"));
  CHECK(decoder.results().empty());
  test::the_fake().waiting = NVIMGCODEC_STATUS_ALLOCATOR_FAILURE;
  CHECK_THROWS_AS(decoder.decode(batch.charts, some_stream), std::bad_alloc);

  test::the_fake().waiting = NVIMGCODEC_STATUS_SUCCESS;
  CHECK_THROWS_AS(decoder.decode(batch.charts, some_stream), ps::image_corrupt);
  CHECK(decoder.results()[0].backend == backend::gpu);
  test::the_fake().undecoded = NVIMGCODEC_PROCESSING_STATUS_UNKNOWN;
  CHECK_THROWS_AS(decoder.decode(batch.charts, some_stream), ps::nvimgcodec_error);
}

TEST_CASE(
    "nvImageCodec's objects of a batch live until the next one is decoded: a GPU may still "
    "write",
    "[nvimgcodec]") {
  const fresh_fake clean;
  ps::nvimgcodec_batch decoder{{.device = 0}};
  const int idle = test::the_fake().alive;
  words two{{"g", "gc"}};
  decoder.decode(two.charts, some_stream);
  // a stream and an image per image, and a future.
  CHECK(test::the_fake().alive == idle + 2 * 2 + 1);
  words one{{"g"}, {1, 0, {1, 2}}};
  decoder.decode(one.charts, some_stream);
  CHECK(test::the_fake().alive == idle + 2 + 1 + 1);  // a cropped region has a separate stream

  test::the_fake().waiting = NVIMGCODEC_STATUS_EXTENSION_CUDA_CALL_ERROR;
  CHECK_THROWS_AS(decoder.decode(two.charts, some_stream), ps::nvimgcodec_error);
  CHECK(test::the_fake().alive == idle + 2 * 2 + 1);
}

TEST_CASE("nvImageCodec works with memory of a device that is given, and keeps it",
          "[nvimgcodec]") {
  struct counting : ps::cpu_device {
    std::shared_ptr<std::array<std::size_t, 4>> calls =
        std::make_shared<std::array<std::size_t, 4>>();
    [[nodiscard]] void* allocate(std::size_t bytes) const {
      ++(*calls)[0];
      return cpu_device::allocate(bytes);
    }
    void deallocate(void* data, std::size_t bytes) const noexcept {
      ++(*calls)[1];
      cpu_device::deallocate(data, bytes);
    }
    [[nodiscard]] ps::pinned_block allocate_pinned(std::size_t bytes) const {
      ++(*calls)[2];
      return cpu_device::allocate_pinned(bytes);
    }
    void deallocate_pinned(void* data, std::size_t bytes) const noexcept {
      ++(*calls)[3];
      cpu_device::deallocate_pinned(data, bytes);
    }
  };
  const fresh_fake clean;
  const counting device;
  const cudaStream_t other = reinterpret_cast<cudaStream_t>(std::uintptr_t{0x5678});
  using counts = std::array<std::size_t, 4>;
  {
    ps::nvimgcodec_batch decoder{device, {.device = 0, .max_memory = 100'000}};
    CHECK((*device.calls == counts{1, 0, 1, 0}));
    words batch{{"g"}};
    for (int i = 0; i < 5; ++i) decoder.decode(batch.charts, some_stream);
    CHECK((*device.calls == counts{2, 0, 2, 0}));  // all five calls use the same block
    CHECK(decoder.device_bytes() == 2 * 16'384);
    decoder.decode(batch.charts, other);  // has no order relative to `some_stream`
    CHECK((*device.calls == counts{3, 0, 3, 0}));
    CHECK(test::the_fake().given[8] != test::the_fake().given[10]);
    for (const auto stream : {other, some_stream}) decoder.decode(batch.charts, stream);
    CHECK((*device.calls == counts{3, 0, 3, 0}));

    test::the_fake().working = 60'000;  // more than is available after rounding up
    CHECK_THROWS_AS(decoder.decode(batch.charts, some_stream), std::bad_alloc);
    test::the_fake().working = (std::numeric_limits<std::size_t>::max)();
    CHECK_THROWS_AS(decoder.decode(batch.charts, some_stream), std::bad_alloc);
    CHECK((*device.calls == counts{3, 0, 3, 0}));
    CHECK(decoder.pinned_bytes() == 3 * 16'384);
    test::the_fake().working = 10'000;
    decoder.decode(batch.charts, some_stream);
  }
  CHECK((*device.calls == counts{3, 3, 3, 3}));

  struct second : counting {
    [[nodiscard]] static int ordinal() { return 2; }
  };
  ps::nvimgcodec_batch there{second{}};
  CHECK(there.options().device == 2);
  CHECK_THROWS_AS((ps::nvimgcodec_batch{second{}, {.device = 1}}), ps::option_error);
  CHECK(ps::nvimgcodec_batch{{.device = 0}}.device_bytes() == 0);
}

TEST_CASE("a failed device allocation is reported by a status and leaves nothing behind",
          "[nvimgcodec]") {
  int value = 0;
  bool gives = true;
  std::vector<std::size_t> given_back;
  {
    ps::detail::nvimgcodec_pool pool{
        ~std::uint64_t{0},
        [&](std::size_t) -> void* { return gives ? &value : throw std::bad_alloc(); },
        [&](void* data, std::size_t bytes) {
          CHECK(data == &value);
          given_back.push_back(bytes);
        }};
    void* data = nullptr;
    CHECK(ps::detail::nvimgcodec_pool::allocate(&pool, &data, 5000, some_stream) == 0);
    CHECK(data == &value);
    gives = false;
    CHECK(ps::detail::nvimgcodec_pool::allocate(&pool, &data, 100, some_stream) != 0);
    CHECK(data == nullptr);
    CHECK(pool.bytes() == 8192);
  }
  CHECK(given_back == std::vector<std::size_t>{8192});
}
