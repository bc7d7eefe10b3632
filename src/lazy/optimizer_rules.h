// The update rules of optimizers, as one table: names, settings, state, and the operations of a step. A rule is a row here and a
// function; optimizer.cc keeps state and records steps for all of them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/ir/builder.h"

namespace weft::lazy {

struct OptimizerSetting {
  std::string_view name;
  double usual;        // where nobody says another
  double low, high;    // at least `low` and less than `high`
  bool truth = false;  // 0 or 1
};

struct OptimizerRule;

// The settings of some parameters. Whether one of them is 0 is part of the program where the rule says so; its amount is a
// run-time scalar.
struct OptimizerGroup {
  const OptimizerRule* rule = nullptr;
  std::vector<double> values;  // in the order of the rule's settings

  double at(std::string_view setting) const;
  bool on(std::string_view setting) const { return at(setting) != 0; }
};
using OptimizerScalars = absl::InlinedVector<double, 16>;

// The step of one parameter: what it was, its gradient and state, all of the computing type.
struct RuleCall {
  ir::Builder& b;
  const OptimizerGroup& group;
  std::span<const ir::Value> scalars;  // in the order that the rule's `scalars` gives
  std::span<const std::string_view> slots;
  std::span<const ir::Value> state;  // of each slot
  std::span<ir::Value> next;         // of each slot; begins as `state`
  ir::Value p, g;

  const ir::Value& was(std::string_view slot) const { return state[Number(slot)]; }
  void Keep(std::string_view slot, const ir::Value& value) const { next[Number(slot)] = value; }
  bool has(std::string_view slot) const { return Number(slot) < slots.size(); }
  size_t Number(std::string_view slot) const;
};

struct OptimizerRule {
  std::string_view name;
  std::span<const OptimizerSetting> settings;
  // State that every parameter has, then state that only a setting asks for, and that setting.
  std::span<const std::string_view> slots;
  std::span<const std::string_view> more_slots, asked_by;
  // The numbers of step t, from 1, in the order in which `update` takes them.
  void (*scalars)(const OptimizerGroup& group, double rate, double t, OptimizerScalars* out);
  // Returns the parameter's new value.
  ir::Value (*update)(const RuleCall& call);
  // Null: nothing but the range of each setting is asked.
  absl::Status (*check)(const OptimizerGroup& group) = nullptr;
  // Null: a slot has its parameter's shape.
  Dims (*shape)(std::string_view slot, const Dims& parameter) = nullptr;
  bool complex = true;  // a complex parameter is two real ones
  int rank = -1;        // of all parameters; negative: any
  bool whole = false;   // an element's step depends on the others of its tensor
};

// Every rule there is.
std::span<const OptimizerRule> OptimizerRules();
// Null: there is none of this name.
const OptimizerRule* FindOptimizerRule(std::string_view name);
// A group with the usual settings.
OptimizerGroup UsualGroup(const OptimizerRule& rule);
absl::Status CheckGroup(const OptimizerGroup& group);
// The state of an optimizer: a slot that one group asks for, every parameter has.
std::vector<std::string_view> SlotsOf(std::span<const OptimizerGroup> groups);
size_t ScalarCount(const OptimizerGroup& group);

}  // namespace weft::lazy
