// SPDX-License-Identifier: BSL-1.0
// A pipeline in C++ with a loop in Python:
//
//   loader = patterns.Loader(samples=1000, batch_size=64, workers=2, seed=1)
//   for image, label in loader.epoch(0):
//       x = torch.from_dlpack(image).float() / 255
//
// Reading runs on C++ threads without the GIL. The memory of a batch is reused after its last array
// is destroyed.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <penstock/penstock.hpp>
#include <penstock_ext/interop/shared_batch.hpp>

#include <cstdint>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "exported_field.hpp"
#include "interruptible.hpp"

namespace {

// Images that encode their sample index. One sample may be bad, and each read waits for the file
// `disk`.
struct patterns {
  using record_type =
      ps::record<ps::field<"image", std::uint8_t, 28, 28>, ps::field<"label", std::int64_t>>;
  std::uint64_t samples;
  std::int64_t bad;
  std::string disk;
  std::uint64_t size() const { return samples; }
  void read(std::uint64_t index, ps::sample<record_type> out) const {
    const auto label = static_cast<std::int64_t>(index);
    if (label == bad) throw std::out_of_range{"pattern " + std::to_string(index) + " is bad"};
    if (!disk.empty()) std::ifstream{disk}.get();
    std::uint64_t pixel = index;
    for (auto& value : ps::get<"image">(out).flat()) value = static_cast<std::uint8_t>(pixel++);
    ps::get<"label">(out) = label;
  }
};

using loader_type = ps::loader<patterns, ps::shuffled>;
using batch_type = loader_type::batch_type;
using field = exported_field<batch_type>;

// An epoch of a loader. Starting another epoch ends this epoch.
class epoch {
 public:
  epoch(std::shared_ptr<interruptible<loader_type>> source, const ps::batch_position& from)
      : source_(std::move(source)), serial_(source_->start(from)) {}
  nb::object next() {
    auto batch = source_->next(serial_);
    if (!batch) throw nb::stop_iteration();
    const auto shared = ps::share(std::move(batch));
    return nb::make_tuple(field::of<"image">(shared), field::of<"label">(shared));
  }

 private:
  std::shared_ptr<interruptible<loader_type>> source_;
  std::uint64_t serial_;
};

class loader {
 public:
  loader(std::uint64_t samples, std::size_t batch_size, std::size_t workers, std::uint64_t seed,
         std::size_t prefetch, std::int64_t bad, std::string disk)
      : source_(std::make_shared<interruptible<loader_type>>(
            loader_type{patterns{samples, bad, std::move(disk)},
                        ps::shuffled{.seed = seed},
                        {.batch_size = batch_size, .workers = workers, .prefetch = prefetch}})) {}
  epoch epoch_of(std::uint64_t number, std::uint64_t first) const {
    return {source_, {.epoch = number, .batch = first}};
  }
  std::uint64_t size() const { return source_->loader().batches_per_epoch(); }

 private:
  std::shared_ptr<interruptible<loader_type>> source_;
};

}  // namespace

NB_MODULE(patterns, module) {
  const nb::exception<ps::error> error{module, "Error", PyExc_RuntimeError};
  nb::exception<ps::leases_exhausted>(module, "LeasesExhausted", error);
  field::bind(module, "Field");
  nb::class_<epoch>(module, "Epoch")
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &epoch::next);
  nb::class_<loader>(module, "Loader")
      .def(nb::init<std::uint64_t, std::size_t, std::size_t, std::uint64_t, std::size_t,
                    std::int64_t, std::string>(),
           nb::kw_only(), nb::arg("samples"), nb::arg("batch_size"), nb::arg("workers") = 1,
           nb::arg("seed") = 0, nb::arg("prefetch") = 0, nb::arg("bad") = -1, nb::arg("disk") = "")
      .def("epoch", &loader::epoch_of, nb::arg("number"), nb::arg("first") = 0)
      .def("__len__", &loader::size);
}
