// SPDX-License-Identifier: BSL-1.0
#include "checkpoint_format.hpp"

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <penstock/resume/state_text.hpp>

#include "network_state.hpp"
#include "sha256.hpp"
#include "shape.hpp"

namespace mlp {

namespace ps = penstock;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view magic = "penstock_mlp_checkpoint ";
constexpr std::string_view version = "2";
constexpr std::string_view first_version = "1";  // had no scaler and no sums

std::string network_name() {
  std::string name = std::to_string(shape::inputs);
  for (const std::size_t width : {shape::hidden1, shape::hidden2, shape::classes}) {
    name += "-" + std::to_string(width);
  }
  return name;
}

/// What a body has, one after the other: floats, Adam's two powers, the scaler and the samples of a
/// step; and in the middle of a step the sums of its gradients.
constexpr std::size_t array_bytes = shape::parameters * sizeof(float);
constexpr std::size_t first_body_bytes = 3 * array_bytes + 2 * sizeof(double);
constexpr std::size_t body_bytes = first_body_bytes + 3 * 4 + 3 * 8;

/// Calls `each(values)` with all parts of a state that a body of `which` version has, in its order.
template <class State, class Each>
void for_each_part(State& net, std::string_view which, const Each& each) {
  for (auto* array : {&net.parameters, &net.first_moments, &net.second_moments}) {
    each(std::span{*array});
  }
  const auto single = [&](auto& value) { each(std::span{&value, 1}); };
  single(net.steps.first_power);
  single(net.steps.second_power);
  if (which == first_version) return;
  single(net.scaler.scale);
  single(net.scaler.good);
  single(net.scaler.found);
  single(net.scaler.skipped);
  single(net.scaler.samples);
  single(net.planned);
  each(std::span{net.sums});
}

std::string body_of(const network_state& net) {
  std::string body;
  for_each_part(net, version, [&](auto values) {
    const auto bytes = std::as_bytes(values);
    body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return body;
}

network_state network_of(const fs::path& file, std::string_view body, std::string_view which) {
  const std::size_t whole = which == first_version ? first_body_bytes : body_bytes;
  const bool has_sums = which != first_version && body.size() == whole + array_bytes;
  if (body.size() != whole && !has_sums) {
    throw checkpoint_torn(file, "has " + std::to_string(body.size()) + " bytes of arrays, not " +
                                    std::to_string(whole));
  }
  network_state net;
  for (auto* array : {&net.parameters, &net.first_moments, &net.second_moments}) {
    array->resize(shape::parameters);
  }
  if (has_sums) net.sums.resize(shape::parameters);
  for_each_part(net, which, [&](auto values) {
    const auto bytes = std::as_writable_bytes(values);
    if (bytes.empty()) return;
    std::memcpy(bytes.data(), body.data(), bytes.size());
    body.remove_prefix(bytes.size());
  });
  if (net.is_between_steps() == has_sums) {
    throw checkpoint_torn(file, has_sums ? "has sums of a step that has not begun"
                                         : "lacks the sums of the step under way");
  }
  return net;
}

std::string sum_of(std::string_view head, std::string_view body) {
  sha256 sum;
  sum.add(std::as_bytes(std::span{head}));
  sum.add(std::as_bytes(std::span{body}));
  return sum.finish();
}

/// Takes a line "name value" from the start of `text`; torn if there is none.
std::string_view take_line(const fs::path& file, std::string_view& text, std::string_view name) {
  const std::size_t end = text.substr(0, 1024).find('\n');
  if (!text.starts_with(name) || end == std::string_view::npos) {
    throw checkpoint_torn(file, "has no line '" + std::string{name} + "...' where one should be");
  }
  const std::string_view value = text.substr(name.size(), end - name.size());
  text.remove_prefix(end + 1);
  return value;
}

/// Throws unless the file has, at the end of its head, the sum of what it has.
void require_whole(const fs::path& file, std::string_view all) {
  constexpr std::string_view name = "\nsha256 ";
  constexpr std::size_t longest_head = 65536;
  const std::size_t at = all.substr(0, longest_head).find(name);
  const std::size_t end = at == all.npos ? all.npos : all.find('\n', at + name.size());
  if (end == all.npos) {
    throw checkpoint_torn(file, "is damaged or cut short: no line of it has its SHA-256");
  }
  const std::string_view body = all.substr(end + 1);
  const std::size_t from = at + name.size();
  if (all.substr(from, end - from) != sum_of(all.substr(0, at + 1), body)) {
    throw checkpoint_torn(
        file, "is damaged or cut short: its SHA-256 is not the one that it names, with " +
                  std::to_string(body.size()) + " bytes of arrays");
  }
}

}  // namespace

std::string format_checkpoint(const checkpoint& what) {
  std::string head{magic};
  ((head += version) += "\nnetwork ") += network_name();
  ((head += "\nprecision ") += name_of(what.net.precision)) +=
      "\nstate " + ps::to_text(what.state) + "\n";
  const std::string body = body_of(what.net);
  return head + "sha256 " + sum_of(head, body) + "\n" + body;
}

checkpoint parse_checkpoint(const fs::path& file, std::string_view text,
                            precision_choice precision) {
  // The sum first: what a damaged line says means nothing, a version's number neither.
  require_whole(file, text);
  const std::string_view written_by = take_line(file, text, magic);
  if (written_by.find_first_not_of("0123456789") != std::string_view::npos) {
    throw checkpoint_torn(file, "has a version that is no number");
  }
  if (written_by != version && written_by != first_version) {
    throw checkpoint_too_new(file, "is of version " + std::string{written_by} +
                                       " of the format, and this program reads versions up to " +
                                       std::string{version} +
                                       ": take the program that has written it, or begin anew");
  }
  const std::string_view layers = take_line(file, text, "network ");
  const std::string_view kept_as = take_line(file, text, "precision ");
  const std::string_view state = take_line(file, text, "state ");
  static_cast<void>(take_line(file, text, "sha256 "));
  if (layers != network_name()) {
    throw checkpoint_of_another(file, "is of a network " + std::string{layers} +
                                          ", and this one is " + network_name() +
                                          ": name another file, or begin anew");
  }
  if (kept_as != name_of(precision)) {
    throw checkpoint_of_another(
        file, "has its parameters as " + std::string{kept_as} + ", and this program has them as " +
                  std::string{name_of(precision)} + ": name another file, or begin anew");
  }
  checkpoint found{ps::from_text<ps::loader_state>(state), network_of(file, text, written_by)};
  found.net.precision = precision;
  return found;
}

}  // namespace mlp
