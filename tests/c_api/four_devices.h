/* The beginning of every test of meshes: a context of four devices of any platform, and how a tensor lies. */
#ifndef WEFT_TESTS_FOUR_DEVICES_H
#define WEFT_TESTS_FOUR_DEVICES_H

#include "check.h"

/* `plugin` NULL: a platform of the library's own. WEFT_PLUGIN_OPTIONS, where it is set, holds for a plugin. `cache` NULL: programs are kept nowhere. */
static UNUSED weft_context* context_with_cache(const char* platform, const char* plugin, const char* cache) {
  const weft_setting settings[] = {{"cache_dir", WEFT_STRLEN, cache, WEFT_STRLEN},
                                   {"cache_mode", WEFT_STRLEN, cache != NULL ? "write" : "off", WEFT_STRLEN},
                                   {"platform", WEFT_STRLEN, platform, WEFT_STRLEN},
                                   {"seed", WEFT_STRLEN, "11", WEFT_STRLEN},
                                   {"devices", WEFT_STRLEN, "4", WEFT_STRLEN},
                                   {"plugin", WEFT_STRLEN, plugin != NULL ? plugin : "", WEFT_STRLEN},
                                   {"plugin_options", WEFT_STRLEN, plugin != NULL && strstr(plugin, "fake") != NULL ? "devices=4" : "", WEFT_STRLEN}};
  weft_context_options options = WEFT_CONTEXT_OPTIONS_INIT;
  weft_context* ctx = NULL;
  options.settings = settings + (cache == NULL);
  options.setting_count = 7 - (cache == NULL) - (getenv("WEFT_PLUGIN_OPTIONS") != NULL);
  MUST(weft_context_create(&options, &ctx));
  return ctx;
}
static UNUSED weft_context* context_of(const char* platform, const char* plugin) { return context_with_cache(platform, plugin, NULL); }

static UNUSED void lies(weft_tensor* t, const char* spec, int line) {
  weft_blob* text = NULL;
  MUST(weft_tensor_sharding(t, &text));
  if (strcmp(weft_blob_data(text), spec) != 0) printf("%s:%d: lies as %s, not %s\n", __FILE__, line, (const char*)weft_blob_data(text), spec), ++g_failures;
  weft_blob_release(text);
}
#define LIES(t, spec) lies((t), (spec), __LINE__)

#endif
