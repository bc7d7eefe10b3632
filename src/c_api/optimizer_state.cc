// weft_optimizer_state, weft_optimizer_whole_state, weft_optimizer_load, weft_optimizer_load_from: an optimizer's state as a tree.
#include "absl/functional/function_ref.h"
#include "src/c_api/checkpoint_reader.h"
#include "src/c_api/optimizer_object.h"
#include "src/c_api/optimizer_parts.h"
#include "src/c_api/tree_object.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"
#include "weft.h"

namespace weft::c_api {
namespace {

using namespace state_keys;  // NOLINT(google-build-using-namespace)

// A child of a dict, or NOT_FOUND that says what the state lacks.
absl::StatusOr<Tree::NodeId> Child(const TensorTree& tree, Tree::NodeId node, std::string_view key) {
  const Tree::NodeId found = tree.tree.Find(tree.tree.Resolve(node), key);
  if (found == Tree::kNoNode) return UserErrorOf(absl::StatusCode::kNotFound, "optimizer state has no '", key, "'");
  return tree.tree.Resolve(found);
}

absl::Status CheckNumber(std::string_view key, const Tree::Node& node) {
  if (node.kind == Tree::Kind::kInt64 && node.int64 >= 0) return absl::OkStatus();
  return UserError("the state's '", key, "' is ",
                   node.kind == Tree::Kind::kInt64 ? absl::StrCat(node.int64) : std::string(Tree::NameOf(node.kind)),
                   "; it must be an integer of 0 or more");
}

// The tree of a state whose slots `slot` gives.
template <typename Slot>
absl::Status StateOf(const lazy::Optimizer& object, bool parts, const Slot& slot, weft_tree** out) {
  TensorTree tree;
  const auto add = [&](std::string_view key, auto value) {
    return tree.tree.Add(Tree::root(), key, std::move(value)).status();
  };
  WEFT_RETURN_IF_ERROR(add("kind", Tree::Text(object.rule().name)));
  WEFT_RETURN_IF_ERROR(add("step", Tree::Int64(object.step_count())));
  if (parts) {
    WEFT_RETURN_IF_ERROR(add(kRank, Tree::Int64(object.parts()->rank())));
    WEFT_RETURN_IF_ERROR(add(kRanks, Tree::Int64(object.parts()->count())));
    WEFT_ASSIGN_OR_RETURN(const Tree::NodeId shapes, tree.tree.Add(Tree::root(), kShapes, Tree::List()));
    for (const Ref<lazy::Tensor>& parameter : object.parameters()) {
      WEFT_ASSIGN_OR_RETURN(const Tree::NodeId shape, tree.tree.Append(shapes, Tree::List()));
      for (const int64_t dim : parameter->dims())
        WEFT_RETURN_IF_ERROR(tree.tree.Append(shape, Tree::Int64(dim)).status());
    }
  }
  WEFT_ASSIGN_OR_RETURN(Tree::NodeId slots, tree.tree.Add(Tree::root(), kSlots, Tree::Dict()));
  for (size_t name = 0; name < object.slot_names().size(); ++name) {
    WEFT_ASSIGN_OR_RETURN(Tree::NodeId list, tree.tree.Add(slots, object.slot_names()[name], Tree::List()));
    for (size_t i = 0; i < object.parameters().size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> tensor, slot(name, i));
      WEFT_RETURN_IF_ERROR(tree.AddTensor(list, {}, std::move(tensor)).status());
    }
  }
  WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(MakeRef<TreeObject>(std::move(tree))));
  return absl::OkStatus();
}

// Tells whether a state is this process's part; an error where it is another one's.
absl::StatusOr<bool> IsPart(const lazy::Optimizer& object, const TensorTree& from, Tree::NodeId node) {
  if (from.tree.Find(from.tree.Resolve(node), kRanks) == Tree::kNoNode) return false;
  int64_t numbers[2] = {};
  for (size_t i = 0; i < 2; ++i) {
    const std::string_view key = i == 0 ? kRank : kRanks;
    WEFT_ASSIGN_OR_RETURN(const Tree::NodeId at, Child(from, node, key));
    WEFT_RETURN_IF_ERROR(CheckNumber(key, from.tree.node(at)));
    numbers[i] = from.tree.node(at).int64;
  }
  if (numbers[1] == 1) return false;  // a job has put it together
  const lazy::StateParts* const own = object.parts();
  if (own != nullptr && own->rank() == numbers[0] && own->count() == numbers[1]) return true;
  return UserError(
      "the state is the part of rank ", numbers[0], " of ", numbers[1], ", and this optimizer keeps ",
      own == nullptr ? std::string("all of it") : absl::StrCat("the part of rank ", own->rank(), " of ", own->count()),
      "; weft_optimizer_whole_state gives a state for any number of processes");
}

// This process's part of a whole slot, recorded.
absl::StatusOr<Ref<lazy::Tensor>> PartOfSlot(const lazy::StateParts& parts, lazy::Tensor* whole) {
  lazy::Engine& engine = whole->engine();
  const auto record = [&](const ir::OpDef& op, std::vector<lazy::Tensor*> operands,
                          ir::Attrs attrs) -> absl::StatusOr<Ref<lazy::Tensor>> {
    lazy::Tensors results;
    WEFT_RETURN_IF_ERROR(engine.Record(op, operands, std::move(attrs), CurrentLocation(engine), &results));
    return std::move(results[0]);
  };
  const int64_t elements = CountOf(whole->dims()), part = parts.PartOf(whole->dims());
  const int64_t begin = std::min(parts.rank() * part, elements), end = std::min(begin + part, elements);
  WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> flat, record(ops::kOp_reshape, {whole}, {ir::Ints{elements}}));
  WEFT_ASSIGN_OR_RETURN(flat, record(ops::kOp_slice, {flat.get()}, {ir::Ints{begin}, ir::Ints{end}, ir::Ints{1}}));
  if (end - begin == part) return flat;
  WEFT_ASSIGN_OR_RETURN(const Ref<lazy::Tensor> zero,
                        engine.ScalarLike(*flat, HostTensor(flat->dtype(), {}), /*constant=*/true));
  return record(ops::kOp_pad, {flat.get(), zero.get()}, {ir::Ints{0}, ir::Ints{part - (end - begin)}, ir::Ints{0}});
}

// A slot's new value, of this type; `cut`: this process's part of it.
struct Wanted {
  size_t name, parameter;
  lazy::Tensor* slot;
  ir::Type type;
  bool cut;
};
using SlotValue = absl::FunctionRef<absl::StatusOr<Ref<lazy::Tensor>>(Tree::NodeId, const Wanted&)>;

absl::Status CheckType(const lazy::Optimizer& object, const Wanted& wanted, const ir::Type& type) {
  if (type == wanted.type) return absl::OkStatus();
  return UserError("the state's '", object.slot_names()[wanted.name], "' of parameter ", wanted.parameter, " is ",
                   ir::ShortType(type), ", not ", ir::ShortType(wanted.type));
}

// All is there before the first value is taken over.
absl::Status Load(lazy::Optimizer& object, const TensorTree& from, Tree::NodeId node, SlotValue value_of) {
  WEFT_RETURN_IF_ERROR(from.Node(node).status());
  WEFT_ASSIGN_OR_RETURN(Tree::NodeId kind, Child(from, node, "kind"));
  WEFT_ASSIGN_OR_RETURN(Tree::NodeId step, Child(from, node, "step"));
  WEFT_ASSIGN_OR_RETURN(Tree::NodeId slots, Child(from, node, kSlots));
  const Tree::Node& steps = from.tree.node(step);
  WEFT_RETURN_IF_ERROR(CheckNumber("step", steps));
  if (from.tree.node(kind).text != object.rule().name) {
    return UserError("the state is of optimizer '", from.tree.node(kind).text, "', not '", object.rule().name, "'");
  }
  WEFT_ASSIGN_OR_RETURN(const bool is_part, IsPart(object, from, node));
  const bool cut = object.parts() != nullptr && !is_part;
  std::vector<std::pair<lazy::Tensor*, Ref<lazy::Tensor>>> pairs;
  std::vector<lazy::Tensor*> values;
  for (size_t name = 0; name < object.slot_names().size(); ++name) {
    WEFT_ASSIGN_OR_RETURN(Tree::NodeId list, Child(from, slots, object.slot_names()[name]));
    const size_t count = object.parameters().size();
    if (from.tree.node(list).children != count) {
      return UserError("the state has ", from.tree.node(list).children, " tensors in '", object.slot_names()[name],
                       "' for ", count, " parameters");
    }
    for (size_t i = 0; i < count; ++i) {
      lazy::Tensor* const slot = object.slot(name, i);
      const Wanted wanted = {name, i, slot, is_part ? slot->type() : object.WholeSlot(name, i), cut};
      WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> value, value_of(from.tree.Child(list, static_cast<uint32_t>(i)), wanted));
      values.push_back(value.get());
      pairs.emplace_back(slot, std::move(value));
    }
  }
  // A program of their own computes parts, so that nothing of a whole state stays.
  if (cut && !values.empty()) WEFT_RETURN_IF_ERROR(object.engine().Eval(values).status());
  for (const auto& [slot, value] : pairs) WEFT_RETURN_IF_ERROR(slot->engine().Assign(slot, value.get()));
  object.set_step_count(steps.int64);
  return absl::OkStatus();
}

absl::Status LoadTree(lazy::Optimizer& object, const TensorTree& from, Tree::NodeId node) {
  return Load(object, from, node, [&](Tree::NodeId leaf, const Wanted& wanted) -> absl::StatusOr<Ref<lazy::Tensor>> {
    WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> value, from.Tensor(leaf));
    WEFT_RETURN_IF_ERROR(CheckType(object, wanted, value->type()));
    WEFT_RETURN_IF_ERROR(SameEngine(value.get(), object.engine(),
                                    absl::StrCat("the state's '", object.slot_names()[wanted.name], "'"),
                                    wanted.parameter));
    if (!wanted.cut) return value;
    return PartOfSlot(*object.parts(), value.get());
  });
}

// The same of a file: where the state is kept in parts, these alone are read.
absl::Status LoadFile(lazy::Optimizer& object, ReaderObject& reader, std::string_view path) {
  WEFT_ASSIGN_OR_RETURN(const Tree* const structure, reader.WholeTree());
  const TensorTree from{.tree = *structure, .values = {}};
  const Tree::NodeId node = path.empty() ? Tree::root() : from.tree.FindPath(path);
  if (node == Tree::kNoNode) return UserErrorOf(absl::StatusCode::kNotFound, "the file has no '", path, "'");
  return Load(object, from, from.tree.Resolve(node),
              [&](Tree::NodeId leaf, const Wanted& wanted) -> absl::StatusOr<Ref<lazy::Tensor>> {
                const Tree::Node& found = from.tree.node(from.tree.Resolve(leaf));
                if (found.kind != Tree::Kind::kTensor) {
                  return UserError("'", from.tree.PathOf(leaf), "' of the file is ", Tree::NameOf(found.kind),
                                   ", not a tensor");
                }
                WEFT_ASSIGN_OR_RETURN(const FileTensor record, reader.Tensor(found.tensor));
                WEFT_RETURN_IF_ERROR(CheckType(
                    object, wanted, ir::Type::Tensor(record.logical, Dims(record.dims.begin(), record.dims.end()))));
                const lazy::DeviceMesh& mesh = wanted.slot->sharding().mesh();
                if (!mesh.alone()) {
                  return UserErrorOf(absl::StatusCode::kUnimplemented, "the optimizer's state is on ", mesh.name(),
                                     "; weft_optimizer_load takes a tree there");
                }
                const lazy::Where place(wanted.slot->device());
                if (!wanted.cut) return reader.Load(found.tensor, place);
                const int64_t part = CountOf(wanted.slot->dims());
                return reader.LoadRange(found.tensor, object.parts()->rank() * part, part, place);
              });
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_optimizer_state(weft_optimizer* optimizer, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Optimizer> object, Get(optimizer, "optimizer"));
    const lazy::Optimizer::Turn turn(*object);
    if (!turn) return Taken();
    const auto slot = [&](size_t name, size_t i) -> absl::StatusOr<Ref<lazy::Tensor>> {
      return Ref<lazy::Tensor>::Share(object->slot(name, i));
    };
    return StateOf(*object, object->parts() != nullptr, slot, out);
  });
}

weft_error* weft_optimizer_whole_state(weft_optimizer* optimizer, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Optimizer> object, Get(optimizer, "optimizer"));
    const lazy::Optimizer::Turn turn(*object);
    if (!turn) return Taken();
    const auto slot = [&](size_t name, size_t i) -> absl::StatusOr<Ref<lazy::Tensor>> {
      lazy::Tensor* const own = object->slot(name, i);
      if (object->parts() == nullptr) return Ref<lazy::Tensor>::Share(own);
      return object->parts()->Whole(own, object->WholeSlot(name, i).dims);
    };
    return StateOf(*object, /*parts=*/false, slot, out);
  });
}

weft_error* weft_optimizer_load(weft_optimizer* optimizer, weft_tree* tree, uint32_t node) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Optimizer> object, Get(optimizer, "optimizer"));
    WEFT_ASSIGN_OR_RETURN(Pin<TreeObject> state, Get(tree, "tree"));
    WEFT_ASSIGN_OR_RETURN(const TensorTree from, state->Copy());
    const lazy::Optimizer::Turn turn(*object);
    if (!turn) return Taken();
    return LoadTree(*object, from, node);
  });
}

weft_error* weft_optimizer_load_from(weft_optimizer* optimizer, weft_checkpoint_reader* reader, const char* path,
                                     size_t path_length) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Optimizer> object, Get(optimizer, "optimizer"));
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> file, Get(reader, "reader"));
    WEFT_ASSIGN_OR_RETURN(const std::string_view where, Text(path, path_length, "path"));
    if (file->engine.get() != &object->engine()) return UserError("reader belongs to another context");
    const lazy::Optimizer::Turn turn(*object);
    if (!turn) return Taken();
    const Interruptible until_cancelled = UntilCancelled(object->engine());
    return LoadFile(*object, *file, where);
  });
}

}  // extern "C"
