// SPDX-License-Identifier: BSL-1.0
// Functions that table_pyarrow.py calls with ctypes, to read streams of other libraries as datasets
// and as blobs.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <numeric>
#include <string>
#include <vector>

#include <penstock_ext/table/arrow_blobs.hpp>
#include <penstock_ext/table/arrow_dataset.hpp>

#include "data/read_batch.hpp"

namespace ps = penstock;

namespace {

std::string said;

}  // namespace

using digit = ps::record<ps::field<"image", std::uint8_t, 2, 3>, ps::field<"label", std::int64_t>,
                         ps::field<"score", float>, ps::field<"is_odd", bool>>;

std::int64_t read_digits(ArrowArrayStream* stream, std::uint8_t* images, std::int64_t* labels,
                         bool zeros) {
  ps::table_options options;
  if (zeros) options.null = ps::null_values::value_initialised;
  ps::arrow_dataset<digit> digits{ps::arrow_stream{stream}, options};
  if (digits.size() == 0) return 0;
  std::vector<std::uint64_t> all(digits.size());
  std::iota(all.begin(), all.end(), 0);
  auto batch = test::read_batch(digits, all);
  std::int64_t checks = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    labels[i] = batch.get<"label">()(i);
    std::memcpy(images + 6 * i, &batch.get<"image">()(i, 0, 0), 6);
    checks += batch.get<"is_odd">()(i) == (labels[i] % 2 != 0) &&
              batch.get<"score">()(i) == static_cast<float>(labels[i]) / 2;
  }
  return checks;
}

extern "C" {

/// Reads a table in order, field by field. Returns the number of rows whose is_odd and score match
/// their label, or -1 if the table is rejected.
[[gnu::visibility("default")]] std::int64_t digits(ArrowArrayStream* stream, std::uint8_t* images,
                                                   std::int64_t* labels, int zeros) {
  try {
    return read_digits(stream, images, labels, zeros != 0);
  } catch (const std::exception& rejected) {
    said = rejected.what();
    return -1;
  }
}

/// Writes the blobs of a column in sequence, each followed by its label and key as text. Returns
/// the number of bytes, or -1 if the column is rejected.
[[gnu::visibility("default")]] std::int64_t blobs(ArrowArrayStream* stream, const char* column,
                                                  char* out, std::int64_t room) {
  try {
    const ps::arrow_blobs source{ps::arrow_stream{stream},
                                 {.blob = column, .label = "label", .key = "key"}};
    std::string all;
    ps::blob_buffer buffer;
    for (std::uint64_t i = 0; i < source.size(); ++i) {
      const auto bytes = source.bytes(i, buffer);
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      all += ' ' + std::to_string(source.label(i)) + ' ' + source.key(i) + '\n';
    }
    if (static_cast<std::int64_t>(all.size()) > room) return -1;
    std::memcpy(out, all.data(), all.size());
    return static_cast<std::int64_t>(all.size());
  } catch (const std::exception& rejected) {
    said = rejected.what();
    return -1;
  }
}

/// Returns the reason why the last table was rejected.
[[gnu::visibility("default")]] const char* why_rejected() { return said.c_str(); }
}
