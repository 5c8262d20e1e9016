// SPDX-License-Identifier: BSL-1.0
// Unpacks arbitrary bytes as a compressed file. `unpack_files` must write the bytes that the codec
// itself gives, or throw the codec's error and leave no file. The first byte of the input selects
// the codec, and whether the other bytes are compressed first, so that they can be unpacked.
#include <penstock_ext/files/unpack_files.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <penstock_ext/files/gzip/gzip.hpp>
#include <penstock_ext/files/support/system_file.hpp>
#include <penstock_ext/files/zstd/zstd.hpp>

#include "ext/files/zstd_packed.hpp"
#include "fuzz/require.hpp"
#include "fuzz/scratch_file.hpp"

namespace ps = penstock;
namespace fs = std::filesystem;

namespace {

constexpr std::size_t max = std::size_t{1} << 18U;

/// A folder that is empty after each input. The folder is in memory if the machine
/// has /dev/shm.
class scratch_folder {
 public:
  scratch_folder() {
    std::error_code ignored;
    std::string name = fs::is_directory("/dev/shm", ignored)
                           ? "/dev/shm/penstock_fuzz_XXXXXX"
                           : (fs::temp_directory_path() / "penstock_fuzz_XXXXXX").string();
    fuzz::require(::mkdtemp(name.data()) != nullptr, "mkdtemp");
    path_ = name;
  }
  ~scratch_folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  scratch_folder(scratch_folder&&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator{path_}, {});
  }

 private:
  std::string path_;
};

// The content of a compressed file, or the error of its codec.
struct outcome {
  std::vector<std::byte> bytes = {};
  std::string error = {};

  friend bool operator==(const outcome&, const outcome&) = default;
};

// Returns the content that `read` returns, or its error.
template <class Read>
outcome outcome_of(const Read& read) {
  try {
    return {.bytes = read()};
  } catch (const ps::file_error& error) {
    return {.error = error.what()};
  }
}

// Unpacks the file twice. The second call must return the file of the first call.
template <class Codec>
std::vector<std::byte> unpacked(const std::string& path, const Codec& codec,
                                const ps::unpack_options& options) {
  const auto paths = ps::unpack_files({path}, codec, options);
  const auto no_codec = [&](const std::string& other) {
    fuzz::require(false, "a file is unpacked once");
    return codec(other);
  };
  fuzz::require(ps::unpack_files({path}, no_codec, options) == paths, "the same path again");
  std::vector<std::byte> bytes = ps::detail::read_file(paths.at(0));
  fs::remove(paths[0]);
  return bytes;
}

template <class Codec>
void compare(const std::string& path, const Codec& codec, std::size_t workers) {
  static const scratch_folder folder;
  std::uint64_t reported = 0;
  const ps::unpack_options options{
      .folder = folder.path(),
      .max_bytes = max,
      .workers = workers,
      .progress = [&](const ps::unpack_progress& state) { reported = state.done_bytes; }};
  const outcome direct = outcome_of([&] {
    auto source = codec(path);
    std::vector<std::byte> bytes(max + 1);
    bytes.resize(source.read(bytes));
    return bytes;
  });
  const bool is_too_large = direct.bytes.size() > max;
  try {
    const outcome found = outcome_of([&] { return unpacked(path, codec, options); });
    fuzz::require(is_too_large ? !found.error.empty() : found == direct,
                  "the content or the error of the codec");
    fuzz::require(!found.error.empty() || reported == found.bytes.size(), "all bytes are reported");
  } catch (const ps::option_error&) {
    fuzz::require(is_too_large, "only a large file exceeds max_bytes");
  }
  fuzz::require(folder.files() == 0, "no file remains");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::scratch_file file;
  if (size == 0) return 0;
  const std::string_view bytes{reinterpret_cast<const char*>(data + 1), size - 1};
  const bool is_gzip = data[0] % 2 == 0;
  // Compresses some inputs, with bytes of the input after the frame.
  std::string packed{bytes};
  if (data[0] / 2 % 4 == 0) packed = test::zstd_packed(bytes) + packed.substr(0, data[0] / 32U);
  file.write(std::as_bytes(std::span{packed}));
  const std::size_t workers = 1 + data[0] / 8 % 2U;
  if (is_gzip) {
    compare(file.path(), ps::gzip, workers);
  } else {
    compare(file.path(), ps::zstd{}, workers);
  }
  return 0;
}
