/* Counts a context's warnings and keeps the last one: on_log with min_log_level WEFT_LOG_WARNING. */
#ifndef WEFT_TESTS_WARNINGS_H
#define WEFT_TESTS_WARNINGS_H

#include "check.h"

static int g_warnings = 0;
static char g_warning[1000];

static void on_log(void* user, weft_log_level level, const char* text, size_t length) {
  (void)user;
  if (level != WEFT_LOG_WARNING) return;
  ++g_warnings;
  snprintf(g_warning, sizeof g_warning, "%.*s", (int)length, text);
}

#endif
