// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <string>
#include <vector>

#include <penstock/load/loader.hpp>

namespace ps = penstock;

struct good {
  using record_type = ps::record<ps::field<"x", float>>;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<record_type> out) const { ps::get<"x">(out) = 1; }
};

struct read_is_not_const {
  using record_type = good::record_type;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<record_type>) {}
};

struct no_size {
  using record_type = good::record_type;
  void read(std::uint64_t, ps::sample<record_type>) const {}
};

struct no_extents {
  using record_type = ps::record<ps::field<"x", float, ps::dyn>>;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<record_type>) const {}
};

struct reads_another_record {
  using record_type = good::record_type;
  std::uint64_t size() const { return 1; }
  void read(std::uint64_t, ps::sample<ps::record<ps::field<"y", float>>>) const {}
};

void use() {
  const ps::loader_options options{.batch_size = 4};
  const ps::shuffled order{.seed = 1};
  ps::loader fine{good{}, order, {.batch_size = 4}};  // compiles
  ps::loader a{read_is_not_const{}, order, {.batch_size = 4}};  // expected-error: which must be const
  ps::loader b{no_size{}, order, options};  // expected-error: `std::uint64_t size() const`
  ps::loader c{no_extents{}, order, options};  // expected-error: with dyn extents needs
  ps::loader d{std::vector<int>{}, order, options};  // expected-error: needs `using record_type
  ps::loader e{reads_another_record{}, order, options};  // expected-error: needs `void read(std::
}

void of_an_lvalue(const read_is_not_const& data) {
  ps::loader a{data, ps::sequential{}, {.batch_size = 4}};  // expected-error: which must be const
}
