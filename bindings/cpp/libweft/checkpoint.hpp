/* Trees of tensors of libweft.hpp, and checkpoints: files of them. */
#ifndef LIBWEFT_CHECKPOINT_HPP
#define LIBWEFT_CHECKPOINT_HPP

#include "context.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

class tree;

/* The kinds of a tree's nodes. Since 1.2. */
enum class node_kind : std::int32_t {
  none = WEFT_NODE_NONE,
  dict = WEFT_NODE_DICT,
  list = WEFT_NODE_LIST,
  tuple = WEFT_NODE_TUPLE,
  tensor = WEFT_NODE_TENSOR,
  boolean = WEFT_NODE_BOOL,
  i64 = WEFT_NODE_I64,
  f64 = WEFT_NODE_F64,
  text = WEFT_NODE_TEXT,
  bytes = WEFT_NODE_BYTES,
  alias = WEFT_NODE_ALIAS
};

/* Types of C++ that a tree's nodes hold. Since 1.2. */
template <class T>
concept tree_value =
    std::same_as<T, tensor> || std::same_as<T, bool> || std::integral<T> || std::floating_point<T> ||
    std::convertible_to<T, std::string_view> || std::same_as<T, std::span<const std::byte>> || std::same_as<T, tree>;

/* A place in a tree: reads what is there, adds below it. It is good as long as the tree has references, of which it
 * has one. */
class tree_node {
 public:
  /* A node of no tree. */
  [[nodiscard]] static tree_node none() noexcept { return {}; }
  template <tree_value T>
  [[nodiscard]] result<tree_node> try_add(std::string_view key, const T& value) const;
  /* Adds a tensor, number, truth value, text, bytes or another tree under a key of a dict, or at the end of a list
   * (an empty key). The tree holds a reference of a tensor, whose value survives barriers. Errors: already_exists, …
   * Since 1.2. */
  template <tree_value T>
  const tree_node& add(std::string_view key, const T& value) const {
    detail::must(try_add(key, value));
    return *this;
  }
  [[nodiscard]] result<tree_node> try_add_dict(std::string_view key) const { return added(weft_tree_add_dict, key); }
  [[nodiscard]] result<tree_node> try_add_list(std::string_view key) const { return added(weft_tree_add_list, key); }
  /* Adds an empty dict, or list, and gives its node. Since 1.2. */
  tree_node add_dict(std::string_view key) const { return detail::must(try_add_dict(key)); }
  tree_node add_list(std::string_view key) const { return detail::must(try_add_list(key)); }

  [[nodiscard]] result<tree_node> try_find(std::string_view path) const;
  /* The node below by path, keys and positions joined by ".": "layers.0.weight". Errors: not_found says what there
   * is. Since 1.2. */
  [[nodiscard]] tree_node operator[](std::string_view path) const { return detail::must(try_find(path)); }
  template <class T>
  [[nodiscard]] result<T> try_as() const;
  /* The node's value: as<weft::tensor>(), as<double>(), as<std::int64_t>(), as<bool>(), as<std::string>() for
   * text and bytes. Errors: invalid_argument where it holds something else. Since 1.2. */
  template <class T>
  [[nodiscard]] T as() const {
    return detail::must(try_as<T>());
  }
  [[nodiscard]] result<node_kind> try_kind() const;
  [[nodiscard]] node_kind kind() const { return detail::must(try_kind()); }
  [[nodiscard]] result<std::size_t> try_size() const;
  /* The number of children. Since 1.2. */
  [[nodiscard]] std::size_t size() const { return detail::must(try_size()); }
  [[nodiscard]] result<tree_node> try_child(std::size_t at) const;
  /* A child by its position, and a node's key in its dict. Since 1.2. */
  [[nodiscard]] tree_node child(std::size_t at) const { return detail::must(try_child(at)); }
  [[nodiscard]] result<std::string> try_key() const;
  [[nodiscard]] std::string key() const { return detail::must(try_key()); }
  [[nodiscard]] std::uint32_t number() const noexcept { return node_; }

 protected:
  friend class tree;
  friend class optimizer;
  using handle = detail::handle<weft_tree, weft_tree_retain, weft_tree_release>;
  struct owner : handle {
    owner() noexcept = default;
    explicit owner(weft_tree* raw) noexcept : handle(raw) {}
  };
  tree_node() noexcept = default;
  tree_node(owner tree, std::uint32_t node, weft_context* ctx) noexcept
      : tree_(std::move(tree)), node_(node), context_(ctx) {}
  template <class F>
  result<tree_node> added(F add, std::string_view key) const {
    std::uint32_t node = 0;
    if (weft_error* raw = add(tree_.get(), node_, key.empty() ? nullptr : key.data(), key.size(), &node))
      return result<tree_node>(raw);
    return tree_node(tree_, node, context_);
  }
  owner tree_;
  std::uint32_t node_ = 0;
  weft_context* context_ = nullptr;
};

/* How a checkpoint is written. */
struct save_options {
  std::int64_t step = 0;              /* your own count, which `weft show` shows */
  std::vector<setting> metadata = {}; /* readable without the tensors */
  bool durable = true;                /* survives loss of power */
};

/* Nested state, a dict at first: what a checkpoint holds. One thread at a time may change it. Since 1.2. */
class tree : public tree_node {
 public:
  /* An empty tree. */
  tree() : tree(detail::must(try_create())) {}
  [[nodiscard]] static result<tree> try_create() {
    weft_tree* out = nullptr;
    if (weft_error* raw = weft_tree_create(&out)) return result<tree>(raw);
    return adopt(nullptr, out);
  }
  /* Takes over a C tree with its reference; ctx is what its tensors belong to, borrowed. Since 1.2. */
  [[nodiscard]] static tree adopt(weft_context* ctx, weft_tree* raw) noexcept {
    return tree(tree_node(owner(raw), WEFT_TREE_ROOT, ctx));
  }
  [[nodiscard]] static tree none() noexcept { return adopt(nullptr, nullptr); }
  [[nodiscard]] weft_tree* get() const noexcept { return tree_.get(); }

  [[nodiscard]] result<void> try_save(const context& ctx, std::string_view path,
                                      const save_options& options = {}) const {
    return result<void>(written(ctx, path, options, nullptr));
  }
  /* Writes the tree as one file, which appears whole or not at all and replaces an older one of that name. Blocks
   * until it is on disk. Errors: permission_denied, resource_exhausted, … Since 1.2. */
  void save(const context& ctx, std::string_view path, const save_options& options = {}) const {
    detail::must(try_save(ctx, path, options));
  }
  [[nodiscard]] result<event> try_save_behind(const context& ctx, std::string_view path,
                                              const save_options& options = {}) const {
    weft_event* out = nullptr;
    if (weft_error* raw = written(ctx, path, options, &out)) return result<event>(raw);
    return event(ctx.get(), out);
  }
  /* The same behind the caller: the values are those of now, the event says how it went. Since 1.2. */
  [[nodiscard]] event save_behind(const context& ctx, std::string_view path, const save_options& options = {}) const {
    return detail::must(try_save_behind(ctx, path, options));
  }
  [[nodiscard]] static result<tree> try_load(const context& ctx, std::string_view path, const device& to = {}) {
    weft_tree* out = nullptr;
    if (weft_error* raw = weft_checkpoint_load(ctx.get(), path.data(), path.size(), to.get(), &out))
      return result<tree>(raw);
    return adopt(ctx.get(), out);
  }
  /* A whole checkpoint; every byte is checked. Errors: not_found, data_loss, … Blocks. Since 1.2. */
  [[nodiscard]] static tree load(const context& ctx, std::string_view path, const device& to = {}) {
    return detail::must(try_load(ctx, path, to));
  }

 private:
  explicit tree(tree_node root) noexcept : tree_node(std::move(root)) {}
  friend class job;
  template <class Call>
  static weft_error* with_options(const save_options& options, Call call) {
    weft_checkpoint_options o{};
    o.struct_size = sizeof o;
    detail::elements<weft_setting> metadata;
    for (const setting& one : options.metadata)
      metadata.push({one.name.data(), one.name.size(), one.value.data(), one.value.size()});
    o.metadata = metadata.data();
    o.metadata_count = metadata.size();
    o.step = options.step;
    o.durable = options.durable ? 0 : -1;
    return call(o);
  }
  weft_error* written(const context& ctx, std::string_view path, const save_options& options, weft_event** out) const {
    return with_options(options, [&](const weft_checkpoint_options& o) {
      return weft_checkpoint_save(ctx.get(), path.data(), path.size(), tree_.get(), &o, out);
    });
  }
};

template <tree_value T>
result<tree_node> tree_node::try_add(std::string_view key, const T& value) const {
  std::uint32_t node = 0;
  weft_error* raw = nullptr;
  const char* const name = key.empty() ? nullptr : key.data();
  weft_tree* const to = tree_.get();
  if constexpr (std::same_as<T, tensor>) {
    raw = weft_tree_add_tensor(to, node_, name, key.size(), value.get(), &node);
  } else if constexpr (std::same_as<T, tree>) {
    raw = weft_tree_add_tree(to, node_, name, key.size(), value.get(), &node);
  } else if constexpr (std::same_as<T, bool>) {
    raw = weft_tree_add_bool(to, node_, name, key.size(), value ? 1 : 0, &node);
  } else if constexpr (std::integral<T>) {
    if constexpr (std::same_as<T, std::uint64_t>) {
      if (value > static_cast<std::uint64_t>(INT64_MAX))
        return error(code::out_of_range, std::to_string(value) + " is no 64-bit signed integer");
    }
    raw = weft_tree_add_i64(to, node_, name, key.size(), static_cast<std::int64_t>(value), &node);
  } else if constexpr (std::floating_point<T>) {
    raw = weft_tree_add_f64(to, node_, name, key.size(), static_cast<double>(value), &node);
  } else if constexpr (std::convertible_to<T, std::string_view>) {
    const std::string_view text = value;
    raw = weft_tree_add_text(to, node_, name, key.size(), text.data(), text.size(), &node);
  } else {
    raw = weft_tree_add_bytes(to, node_, name, key.size(), value.data(), value.size(), &node);
  }
  if (raw != nullptr) return result<tree_node>(raw);
  return tree_node(tree_, node, context_);
}

inline result<tree_node> tree_node::try_find(std::string_view path) const {
  std::uint32_t node = 0;
  if (weft_error* raw = weft_tree_find(tree_.get(), node_, path.data(), path.size(), &node))
    return result<tree_node>(raw);
  return tree_node(tree_, node, context_);
}

template <class T>
result<T> tree_node::try_as() const {
  if constexpr (std::same_as<T, tensor>) {
    weft_tensor* out = nullptr;
    weft_error* raw = weft_tree_get_tensor(tree_.get(), node_, &out);
    return detail::made(raw, context_, out);
  } else if constexpr (std::same_as<T, bool>) {
    std::int32_t value = 0;
    if (weft_error* raw = weft_tree_get_bool(tree_.get(), node_, &value)) return result<bool>(raw);
    return value != 0;
  } else if constexpr (std::same_as<T, std::int64_t>) {
    std::int64_t value = 0;
    if (weft_error* raw = weft_tree_get_i64(tree_.get(), node_, &value)) return result<std::int64_t>(raw);
    return value;
  } else if constexpr (std::same_as<T, double>) {
    double value = 0;
    if (weft_error* raw = weft_tree_get_f64(tree_.get(), node_, &value)) return result<double>(raw);
    return value;
  } else {
    static_assert(std::same_as<T, std::string>,
                  "a node holds a tensor, a double, a 64-bit integer, a bool or a string");
    const void* data = nullptr;
    std::size_t length = 0;
    if (weft_error* raw = weft_tree_get_data(tree_.get(), node_, &data, &length)) return result<std::string>(raw);
    return std::string(static_cast<const char*>(data), length);
  }
}

inline result<node_kind> tree_node::try_kind() const {
  weft_node_kind found{};
  if (weft_error* raw = weft_tree_kind(tree_.get(), node_, &found)) return result<node_kind>(raw);
  return static_cast<node_kind>(found);
}
inline result<std::size_t> tree_node::try_size() const {
  std::uint32_t count = 0;
  if (weft_error* raw = weft_tree_size(tree_.get(), node_, &count)) return result<std::size_t>(raw);
  return std::size_t{count};
}
inline result<tree_node> tree_node::try_child(std::size_t at) const {
  std::uint32_t node = 0;
  const std::uint32_t index = at < UINT32_MAX ? static_cast<std::uint32_t>(at) : UINT32_MAX;
  if (weft_error* raw = weft_tree_child(tree_.get(), node_, index, &node)) return result<tree_node>(raw);
  return tree_node(tree_, node, context_);
}
inline result<std::string> tree_node::try_key() const {
  const char* found = nullptr;
  std::size_t length = 0;
  if (weft_error* raw = weft_tree_key(tree_.get(), node_, &found, &length)) return result<std::string>(raw);
  return std::string(found, length);
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_CHECKPOINT_HPP
