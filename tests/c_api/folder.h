/* A folder of a test's own, below TMPDIR. For files that ask for POSIX. */
#ifndef WEFT_TESTS_FOLDER_H
#define WEFT_TESTS_FOLDER_H

#include <unistd.h>

#include "check.h"

static char g_dir[300];

/* Ends the process where none can be made. */
static void make_folder(void) {
  const char* folder = getenv("TMPDIR");
  snprintf(g_dir, sizeof g_dir, "%s/weft_c_test_XXXXXX", folder != NULL ? folder : "/tmp");
  if (mkdtemp(g_dir) != NULL) return;
  perror(g_dir);
  exit(1);
}
static void remove_folder(void) {
  char command[400];
  snprintf(command, sizeof command, "rm -rf '%s'", g_dir);
  if (system(command) != 0) printf("could not remove %s\n", g_dir);
}

#endif
