// SPDX-License-Identifier: BSL-1.0
// Maps arrays and records from files. The arguments are IMAGES.npy and LABELS.npy, with N x H x W x
// C bytes and N 64-bit integers; or FILE.npz with the arrays "image" and "label"; or FILE.bin with
// records in CIFAR-10's format. Without arguments, the program creates such records. --digest reads
// in order and prints the SHA-256 of each field over all samples.
#include <penstock/penstock.hpp>
#include <penstock_ext/files/npy_dataset.hpp>
#include <penstock_ext/files/raw_records.hpp>

#include <cstdint>
#include <exception>
#include <iostream>
#include <string>

#include "data/made_folder.hpp"
#include "data/read_all.hpp"

namespace ps = penstock;

using image_record = ps::record<ps::field<"image", std::uint8_t, ps::dyn, ps::dyn, ps::dyn>,
                                ps::field<"label", std::int64_t>>;
using record_of_cifar =
    ps::record<ps::field<"label", std::uint8_t>, ps::field<"image", std::uint8_t, 3, 32, 32>>;

// Returns `count` records, each consisting of a one-byte label and an image of 3072 bytes.
std::string made_records(unsigned count) {
  std::string bytes;
  for (unsigned i = 0; i < count; ++i) {
    bytes += static_cast<char>(i % 10);
    for (unsigned p = 0; p < 3072; ++p) bytes += static_cast<char>((i * 31 + p * 7) % 128);
  }
  return bytes;
}

int main(int argc, char** argv) try {
  auto [files, digest] = data::arguments_of(argc, argv);
  const data::made_folder made;
  if (files.empty()) files.push_back(made.write("records.bin", made_records(200)));

  const ps::shuffled order{.seed = 1};
  if (files.size() == 2) {
    data::read_all(ps::npy_dataset<image_record>{files[0], files[1]}, order, digest);
  } else if (files[0].ends_with(".npz")) {
    data::read_all(ps::npy_dataset<image_record>{ps::npz{files[0]}}, order, digest);
  } else {
    data::read_all(ps::raw_records<record_of_cifar>{files[0]}, order, digest);
  }
} catch (const std::exception& problem) {
  std::cerr << "17_arrays: " << problem.what() << '\n';
  return 1;
}
