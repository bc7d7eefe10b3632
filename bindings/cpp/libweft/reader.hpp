/* Checkpoint files of libweft.hpp that are read piece by piece: the table of contents, and single tensors. */
#ifndef LIBWEFT_READER_HPP
#define LIBWEFT_READER_HPP

#include "checkpoint.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* One tensor of a checkpoint. Since 1.2. */
struct checkpoint_entry {
  std::string path;       /* "model.conv1.weight" */
  tensor_type type;       /* element type and shape */
  weft::dtype stored{};   /* the element type that the file holds */
  std::uint64_t size = 0; /* bytes in the file */
};

/* What a checkpoint says of itself. Since 1.2. */
struct checkpoint_info {
  std::int64_t step = 0;            /* as save_options gave it */
  std::int64_t created_unix_ns = 0; /* when its writing began: nanoseconds since 1970 */
  std::uint64_t file_bytes = 0;
  std::uint64_t tensor_bytes = 0; /* of all tensors, an alias not counted */
  std::uint64_t tensors = 0;
  std::string producer; /* "weft 0.1.0" */
};

/* An open checkpoint, of which only the table of contents is in memory. Any thread. Since 1.2. */
class checkpoint_reader
    : public detail::handle<weft_checkpoint_reader, weft_checkpoint_reader_retain, weft_checkpoint_reader_release> {
 public:
  checkpoint_reader() noexcept = default;
  [[nodiscard]] static result<checkpoint_reader> try_open(const context& ctx, std::string_view path) {
    weft_checkpoint_reader* out = nullptr;
    if (weft_error* raw = weft_checkpoint_reader_open(ctx.get(), path.data(), path.size(), &out))
      return result<checkpoint_reader>(raw);
    return checkpoint_reader(ctx.get(), out);
  }
  /* Opens a file and reads its table of contents. Errors: not_found, data_loss, … Blocks. Since 1.2. */
  [[nodiscard]] static checkpoint_reader open(const context& ctx, std::string_view path) {
    return detail::must(try_open(ctx, path));
  }

  [[nodiscard]] result<std::size_t> try_size() const {
    std::size_t count = 0;
    if (weft_error* raw = weft_checkpoint_reader_count(get(), &count)) return result<std::size_t>(raw);
    return count;
  }
  /* The number of tensors. Since 1.2. */
  [[nodiscard]] std::size_t size() const { return detail::must(try_size()); }
  [[nodiscard]] result<checkpoint_entry> try_entry(std::size_t index) const {
    weft_checkpoint_entry found{};
    found.struct_size = sizeof found;
    if (weft_error* raw = weft_checkpoint_reader_entry(get(), index, &found)) return result<checkpoint_entry>(raw);
    return checkpoint_entry{
        std::string(found.path, static_cast<std::size_t>(found.path_length)),
        {static_cast<weft::dtype>(found.dtype), shape::of(found.dims, static_cast<std::size_t>(found.rank))},
        static_cast<weft::dtype>(found.stored),
        found.size_bytes};
  }
  /* One tensor's path, type and size, by its number. Errors: out_of_range. Since 1.2. */
  [[nodiscard]] checkpoint_entry entry(std::size_t index) const { return detail::must(try_entry(index)); }
  [[nodiscard]] result<checkpoint_entry> try_find(std::string_view path) const {
    std::size_t index = 0;
    if (weft_error* raw = weft_checkpoint_reader_find(get(), path.data(), path.size(), &index))
      return result<checkpoint_entry>(raw);
    return try_entry(index);
  }
  /* The same by its path, or by another name of it. Errors: not_found. Since 1.2. */
  [[nodiscard]] checkpoint_entry find(std::string_view path) const { return detail::must(try_find(path)); }

  [[nodiscard]] result<tensor> try_load(std::string_view path, const device& to = {}) const {
    weft_tensor* out = nullptr;
    weft_error* raw = weft_checkpoint_reader_load(get(), path.data(), path.size(), to.get(), &out);
    return detail::made(raw, context_, out);
  }
  /* Reads one tensor and checks its bytes. Errors: not_found, data_loss, … Blocks. Since 1.2. */
  [[nodiscard]] tensor load(std::string_view path, const device& to = {}) const {
    return detail::must(try_load(path, to));
  }
  [[nodiscard]] result<tree> try_all(const device& to = {}) const {
    weft_tree* out = nullptr;
    weft_error* const raw = weft_checkpoint_reader_tree(get(), to.get(), &out);
    return tree_of(raw, out);
  }
  /* The whole tree with every tensor. Errors: data_loss, … Blocks. Since 1.2. */
  [[nodiscard]] tree all(const device& to = {}) const { return detail::must(try_all(to)); }
  [[nodiscard]] result<tree> try_structure() const {
    weft_tree* out = nullptr;
    weft_error* const raw = weft_checkpoint_reader_structure(get(), &out);
    return tree_of(raw, out);
  }
  /* The whole tree with numbers and texts, without the values of tensors: reads nothing more. Since 1.2. */
  [[nodiscard]] tree structure() const { return detail::must(try_structure()); }
  [[nodiscard]] result<tree> try_metadata() const {
    weft_tree* out = nullptr;
    weft_error* const raw = weft_checkpoint_reader_metadata(get(), &out);
    return tree_of(raw, out);
  }
  /* The metadata as a dict of text. Since 1.2. */
  [[nodiscard]] tree metadata() const { return detail::must(try_metadata()); }
  [[nodiscard]] result<checkpoint_info> try_info() const {
    weft_checkpoint_info found{};
    found.struct_size = sizeof found;
    if (weft_error* raw = weft_checkpoint_reader_info(get(), &found)) return result<checkpoint_info>(raw);
    return checkpoint_info{found.step,
                           found.created_unix_ns,
                           found.file_bytes,
                           found.tensor_bytes,
                           found.tensors,
                           std::string(found.producer, static_cast<std::size_t>(found.producer_length))};
  }
  /* Step, time, sizes and who wrote it. Since 1.2. */
  [[nodiscard]] checkpoint_info info() const { return detail::must(try_info()); }

 private:
  checkpoint_reader(weft_context* ctx, weft_checkpoint_reader* raw) noexcept : handle(raw), context_(ctx) {}
  result<tree> tree_of(weft_error* raw, weft_tree* out) const {
    if (raw != nullptr) return result<tree>(raw);
    return tree::adopt(context_, out);
  }
  weft_context* context_ = nullptr;
};

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_READER_HPP
