// weft_context_cache and weft_cache_*.
#include "serialization/compile_cache.h"
#include "src/c_api/cache_tree.h"
#include "src/c_api/context.h"
#include "src/c_api/options.h"
#include "src/c_api/tree_object.h"
#include "weft.h"

namespace weft::c_api {

class CacheObject final : public RefCounted {
 public:
  CacheObject(std::shared_ptr<CompileCacheStore> store, Ref<lazy::Engine> engine)
      : store(std::move(store)), engine(std::move(engine)) {}
  const std::shared_ptr<CompileCacheStore> store;  // null: no disk cache
  const Ref<lazy::Engine> engine;
};
template <>
struct HandleTraits<weft_cache> {
  using Object = CacheObject;
  static constexpr HandleType kType = HandleType::kCache;
  static const ForkGuard* ForkOf(const CacheObject& object) { return &object.engine->services().fork(); }
};

}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_context_cache(weft_context* ctx, weft_cache** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(
        *out, Make<weft_cache>(MakeRef<CacheObject>(context->cache(), Ref<lazy::Engine>::Share(&context->engine()))));
    return absl::OkStatus();
  });
}

weft_error* weft_cache_dir(weft_cache* cache, const char** out_dir, size_t* out_length) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_dir);
    WEFT_ASSIGN_OR_RETURN(Pin<CacheObject> object, Get(cache, "cache"));
    *out_dir = object->store == nullptr ? "" : object->store->directory().c_str();
    if (out_length != nullptr) *out_length = object->store == nullptr ? 0 : object->store->directory().size();
    return absl::OkStatus();
  });
}

weft_error* weft_cache_read_stats(weft_cache* cache, weft_cache_stats* out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<CacheObject> object, Get(cache, "cache"));
    const Metrics& metrics = object->engine->metrics();
    weft_cache_stats stats = WEFT_CACHE_STATS_INIT;
    stats.memory_hits = static_cast<uint64_t>(metrics.Get(Counter::kMemoryCacheHits));
    stats.compiled = static_cast<uint64_t>(metrics.Get(Counter::kProgramsCompiled));
    if (object->store != nullptr) {
      const CompileCacheStats disk = object->store->stats();
      stats.disk_hits = disk.hits;
      stats.misses = disk.misses;
      stats.published = disk.stores;
      stats.evictions = disk.evictions;
      stats.bytes_read = disk.bytes_read;
      stats.bytes_written = disk.bytes_written;
      stats.refused = disk.refused;
      stats.failures = disk.store_failures + disk.corrupt + disk.version_rejects + disk.read_failures;
    }
    return WriteStruct(&stats, sizeof(stats), "weft_cache_stats", out);
  });
}

weft_error* weft_cache_flush(weft_cache* cache) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<CacheObject> object, Get(cache, "cache"));
    object->engine->services().StartsWork();  // a fork may come while it waits
    if (object->store != nullptr) object->store->Drain();
    return absl::OkStatus();
  });
}

weft_error* weft_cache_list(weft_cache* cache, int32_t verify, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<CacheObject> object, Get(cache, "cache"));
    if (verify != 0 && verify != 1) return UserError("verify is ", verify, "; it is 0 or 1");
    object->engine->services().StartsWork();
    CacheListing listing;
    if (object->store != nullptr) listing = object->store->List(verify == 1);
    TensorTree tree;
    WEFT_RETURN_IF_ERROR(AddListing(listing, &tree.tree));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(MakeRef<TreeObject>(std::move(tree))));
    return absl::OkStatus();
  });
}

weft_error* weft_cache_explain(weft_cache* cache, const char* name, size_t name_length, weft_tree** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<CacheObject> object, Get(cache, "cache"));
    WEFT_ASSIGN_OR_RETURN(const std::string_view digits, Text(name, name_length, "name"));
    object->engine->services().StartsWork();
    CacheListing listing;
    if (object->store != nullptr) listing = object->store->List(/*verify=*/false);
    TensorTree tree;
    WEFT_RETURN_IF_ERROR(AddExplanation(listing, digits, &tree.tree));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_tree>(MakeRef<TreeObject>(std::move(tree))));
    return absl::OkStatus();
  });
}

weft_error* weft_cache_prune(weft_cache* cache, uint64_t max_bytes, int64_t unused_ns, uint64_t* out_entries,
                             uint64_t* out_bytes) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<CacheObject> object, Get(cache, "cache"));
    if (unused_ns < -1) return UserError("unused_ns is ", unused_ns, "; it is -1 or more");
    object->engine->services().StartsWork();
    CacheRemoved removed;
    if (object->store != nullptr) {
      WEFT_ASSIGN_OR_RETURN(removed, object->store->Prune(max_bytes, unused_ns));
    }
    if (out_entries != nullptr) *out_entries = removed.entries;
    if (out_bytes != nullptr) *out_bytes = removed.bytes;
    return absl::OkStatus();
  });
}

void weft_cache_retain(weft_cache* cache) noexcept { RetainHandle(cache, HandleType::kCache); }
void weft_cache_release(weft_cache* cache) noexcept { ReleaseHandle(cache, HandleType::kCache); }

}  // extern "C"
