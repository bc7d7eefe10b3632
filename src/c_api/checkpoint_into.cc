// weft_checkpoint_load_into: a file's values into the tensors of a tree that there is.
#include <algorithm>
#include <optional>

#include "src/c_api/checkpoint_reader.h"
#include "src/c_api/options.h"
#include "src/runtime/alloc_hook.h"
#include "src/runtime/held_types.h"
#include "src/runtime/host_tensor.h"

namespace weft::c_api {
namespace {

constexpr int64_t kPiece = 1 << 16;  // elements converted at a time

struct Fit {
  uint32_t leaf;  // of the tree
  uint32_t id;    // in the file
};

// The tensors that a tree and a file have in common, and the others.
struct Match {
  std::vector<Fit> fits;
  std::vector<std::string> missing, unexpected,
      shape_differs;    // paths of the tree, names of the file, paths of the tree
  std::string example;  // of a shape that differs
};

bool Convertible(DType from, DType to) {
  return from == to || (IsFloat(from) && IsFloat(to)) || (IsInteger(from) && IsInteger(to));
}

absl::StatusOr<Match> Compare(ReaderObject& object, const TensorTree& tree, bool convert) {
  Match match;
  std::vector<bool> used(object.tensor_count());
  absl::Status status;
  tree.tree.ForEachPath([&](Tree::NodeId node, const std::string& path) {
    if (!status.ok() || tree.tree.node(node).kind != Tree::Kind::kTensor) return;
    status = [&]() -> absl::Status {
      const uint32_t leaf = tree.tree.node(node).tensor;
      const lazy::Tensor& target = *tree.values[leaf];
      WEFT_ASSIGN_OR_RETURN(const std::optional<uint32_t> id, object.Look(path));
      if (!id) return match.missing.push_back(path), absl::OkStatus();
      used[*id] = true;
      WEFT_ASSIGN_OR_RETURN(const FileTensor record, object.Tensor(*id));
      if (!std::ranges::equal(record.dims, target.dims())) {
        if (match.shape_differs.empty()) {
          match.example =
              absl::StrCat(DimsToString(target.dims()), " in the tree, ", DimsToString(record.dims), " in the file");
        }
        return match.shape_differs.push_back(path), absl::OkStatus();
      }
      if (record.logical != target.dtype() && !(convert && Convertible(record.logical, target.dtype()))) {
        return UserError("tensor '", path, "' is ", NameOf(record.logical), " in the file and ", NameOf(target.dtype()),
                         " in the tree",
                         Convertible(record.logical, target.dtype()) ? "; weft_load_options.convert converts it"
                                                                     : ", which it is not converted to");
      }
      return match.fits.push_back({leaf, *id}), absl::OkStatus();
    }();
  });
  WEFT_RETURN_IF_ERROR(status);
  for (uint32_t id = 0; id < used.size(); ++id) {
    if (used[id]) continue;
    WEFT_ASSIGN_OR_RETURN(const FileTensor record, object.Tensor(id));
    match.unexpected.emplace_back(record.name);
  }
  return match;
}

// INVALID_ARGUMENT with the first of each list.
absl::Status Complete(const Match& match) {
  std::string text;
  const auto add = [&](const std::vector<std::string>& list, std::string_view what, std::string_view more) {
    if (list.empty()) return;
    absl::StrAppend(&text, text.empty() ? "" : "; ", what, ": ", list.size(), ", first '", list[0], "'", more);
  };
  add(match.missing, "tensors of the tree that the file lacks", "");
  add(match.unexpected, "tensors of the file that the tree lacks", "");
  add(match.shape_differs, "tensors of another shape", absl::StrCat(" (", match.example, ")"));
  if (text.empty()) return absl::OkStatus();
  return UserError("the file does not fit the tree: ", text,
                   "; nothing was loaded (weft_load_options.partial loads what fits)");
}

// Tells whether an integer is one of the type. `wrapped`: it stands for that of u64 above 2^63 - 1.
bool Fits(int64_t value, bool wrapped, DType dtype) {
  const int bits = BitsOf(dtype);
  if (IsUnsigned(dtype)) return wrapped ? bits == 64 : value >= 0 && (bits == 64 || value < int64_t{1} << bits);
  if (wrapped) return false;
  return bits == 64 || (value >= -(int64_t{1} << (bits - 1)) && value < int64_t{1} << (bits - 1));
}

// Some of the tensor's values; an error names an element by its place among them.
absl::Status Convert(const FileTensor& record, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  const DType from = record.logical;
  if (IsHeldAs(from, to) && IsFloat(from)) return ConvertHeld(from, in, to, out), absl::OkStatus();
  const int64_t from_bytes = BytesOf(from), to_bytes = BytesOf(to);
  const int64_t count = static_cast<int64_t>(in.size()) / from_bytes;
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t n = std::min(kPiece, count - at);
    const HostTensor piece(from, {n},
                           in.subspan(static_cast<size_t>(at * from_bytes), static_cast<size_t>(n * from_bytes)));
    HostTensor converted(to, {n});
    for (int64_t i = 0; i < n; ++i) {
      if (IsFloat(from)) {
        converted.SetDouble(i, piece.GetDouble(i));
        continue;
      }
      const int64_t value = piece.GetInt(i);
      if (!Fits(value, from == DType::kU64 && value < 0, to)) {
        return UserErrorOf(absl::StatusCode::kOutOfRange, "element ", at + i, " of tensor '", record.name, "' is ",
                           from == DType::kU64 ? absl::StrCat(static_cast<uint64_t>(value)) : absl::StrCat(value),
                           ", which no ", NameOf(to), " is");
      }
      converted.SetInt(i, value);
    }
    std::ranges::copy(converted.bytes(), out.begin() + static_cast<ptrdiff_t>(at * to_bytes));
  }
  return absl::OkStatus();
}

// A value to be assigned to the target: of its type, where it is, and cut as it is.
absl::StatusOr<Ref<lazy::Tensor>> LoadLike(ReaderObject& object, uint32_t id, lazy::Tensor& target) {
  WEFT_ASSIGN_OR_RETURN(const FileTensor record, object.Tensor(id));
  const DType dtype = target.dtype();
  const lazy::DeviceMesh& mesh = target.sharding().mesh();
  std::string spec;
  if (!mesh.alone()) {
    WEFT_ASSIGN_OR_RETURN(const lazy::Engine::Lying lying, object.engine->LyingOf(&target));
    spec = ir::ToString(mesh.axes(), lying.placement.sharding(), record.dims.size());
  }
  if (record.logical == dtype) {
    return mesh.alone() ? object.Load(id, lazy::Where(target.device())) : object.LoadOnMesh(id, mesh, spec);
  }
  const uint64_t bytes =
      static_cast<uint64_t>(CountOf(record.dims)) * static_cast<uint64_t>(BytesOf(record.logical) + BytesOf(dtype));
  WEFT_RETURN_IF_ERROR(object.CheckBudget(bytes, absl::StrCat("tensor '", record.name, "' and its conversion")));
  const auto fill = [&](const ir::Box& box, std::span<std::byte> out) -> absl::Status {
    std::vector<std::byte, LargeStdAllocator<std::byte>> values(
        static_cast<size_t>(CountOf(box.sizes) * BytesOf(record.logical)));
    WEFT_RETURN_IF_ERROR(object.ReadBoxValues(id, record, box.starts, box.sizes, values));
    return Convert(record, values, dtype, out);
  };
  const lazy::Where place = mesh.alone() ? lazy::Where(target.device()) : lazy::Where(&mesh);
  return object.engine->FromBoxes(place, target.type(), spec, fill);
}

absl::StatusOr<TensorTree> Report(const Match& match) {
  TensorTree report;
  for (const auto& [key, list] : {std::pair("missing", &match.missing), std::pair("unexpected", &match.unexpected),
                                  std::pair("shape_differs", &match.shape_differs)}) {
    WEFT_ASSIGN_OR_RETURN(const Tree::NodeId node, report.tree.Add(Tree::root(), key, Tree::List()));
    for (const std::string& name : *list) WEFT_RETURN_IF_ERROR(report.tree.Append(node, Tree::Text(name)).status());
  }
  return report;
}

absl::StatusOr<TensorTree> LoadInto(ReaderObject& object, const TensorTree& tree, const weft_load_options& options) {
  WEFT_RETURN_IF_ERROR(tree.HasValues());
  for (size_t i = 0; i < tree.values.size(); ++i) {
    if (&tree.values[i]->engine() == object.engine.get()) continue;
    return UserError("tensor '", tree.tree.PathOf(tree.tree.tensors()[i].node),
                     "' of the tree belongs to another context");
  }
  WEFT_ASSIGN_OR_RETURN(Match match, Compare(object, tree, options.convert != 0));
  if (options.partial == 0) WEFT_RETURN_IF_ERROR(Complete(match));
  WEFT_ASSIGN_OR_RETURN(TensorTree report,
                        Report(match));  // first: once tensors change, nothing of the call may fail but reading
  std::ranges::sort(match.fits, {}, &Fit::id);
  for (size_t i = 0; i < match.fits.size(); ++i) {
    lazy::Tensor* const target = tree.values[match.fits[i].leaf].get();
    const absl::Status status = [&]() -> absl::Status {
      WEFT_ASSIGN_OR_RETURN(Ref<lazy::Tensor> value, LoadLike(object, match.fits[i].id, *target));
      return object.engine->Assign(target, value.get());
    }();
    if (!status.ok()) {
      return WithText(
          status, absl::StrCat(status.message(), "; ", i, " of ", match.fits.size(), " tensors have their new values"));
    }
  }
  return report;
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" weft_error* weft_checkpoint_load_into(weft_checkpoint_reader* reader, weft_tree* tree,
                                                 const weft_load_options* options, weft_tree** out_report) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<ReaderObject> object, Get(reader, "reader"));
    const Interruptible until_cancelled = UntilCancelled(*object->engine);
    WEFT_ASSIGN_OR_RETURN(Pin<TreeObject> into, Get(tree, "tree"));
    weft_load_options o;
    WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_load_options", &o));
    WEFT_ASSIGN_OR_RETURN(const TensorTree now, into->Copy());
    WEFT_ASSIGN_OR_RETURN(TensorTree report, LoadInto(*object, now, o));
    if (out_report == nullptr) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(*out_report, Make<weft_tree>(MakeRef<TreeObject>(std::move(report))));
    return absl::OkStatus();
  });
}
