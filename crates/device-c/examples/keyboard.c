/*
 * A keyboard that embeds the device library.
 *
 *   keyboard take-part FOLDER SETTINGS INVITATION TEXTS
 *       enrols, adds each line of the file TEXTS, and runs sessions until an update was sent
 *   keyboard predict FOLDER SETTINGS TEXT
 *       predicts the next words after TEXT with the model that the device holds
 *
 * SETTINGS is the JSON file that docs/guide/embed-the-device.md describes. An app compiles it in.
 */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "undertone.h"

#define MAX_SESSIONS 300

/* What the callbacks of this app share with it. */
typedef struct app {
  bool is_charging;
  unsigned looks;
} app;

static int failed(const char *what) {
  ut_error error;
  ut_last_error(&error);
  fprintf(stderr, "%s failed with %s: %s\n", what, ut_status_name(error.status), error.message);
  return EXIT_FAILURE;
}

static bool is_met(void *context, ut_condition condition) {
  app *self = context;
  self->looks += 1;
  return condition != UT_CHARGING || self->is_charging;
}

static void reached(void *context, ut_stage stage) {
  static const char *const names[] = {"board",   "check in", "loading", "training",
                                      "joining", "sending",  "waiting", "over"};
  (void)context;
  if (stage >= UT_STAGE_BOARD && stage <= UT_STAGE_OVER) {
    printf("stage: %s\n", names[stage]);
  }
}

/* The whole file as a string, which the caller frees. */
static char *contents(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    return NULL;
  }
  char *text = NULL;
  size_t length = 0, room = 0;
  for (;;) {
    if (length + 1 >= room) {
      room = room == 0 ? 4096 : 2 * room;
      char *larger = realloc(text, room);
      if (larger == NULL) {
        free(text);
        fclose(file);
        return NULL;
      }
      text = larger;
    }
    size_t read = fread(text + length, 1, room - length - 1, file);
    if (read == 0) {
      break;
    }
    length += read;
  }
  text[length] = '\0';
  fclose(file);
  return text;
}

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void sleep_until(uint64_t wake_ms) {
  uint64_t now = now_ms();
  if (wake_ms > now) {
    struct timespec wait = {(time_t)((wake_ms - now) / 1000), (long)((wake_ms - now) % 1000) * 1000000};
    nanosleep(&wait, NULL);
  }
}

/* The peak of this program's memory, where the system reports it. */
static void show_memory(void) {
  char *status = NULL;
#ifdef __linux__
  status = contents("/proc/self/status");
#endif
  const char *peak = status == NULL ? NULL : strstr(status, "VmHWM:");
  if (peak != NULL) {
    printf("peak memory: %ld KiB\n", strtol(peak + strlen("VmHWM:"), NULL, 10));
  }
  free(status);
}

/* Gives each line of a text to the device. */
static ut_status add_lines(ut_device device, char *text) {
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    ut_status status = ut_example_add(device, line, 0, 0);
    if (status != UT_OK) {
      return status;
    }
  }
  return UT_OK;
}

static int show_state(ut_device device) {
  ut_state state;
  if (ut_device_state(device, &state) != UT_OK) {
    return failed("ut_device_state");
  }
  printf("enrolled: %s\n", state.enrolled ? "yes" : "no");
  printf("examples: %llu for training, %llu withheld\n", (unsigned long long)state.training_examples,
         (unsigned long long)state.withheld_examples);

  size_t count = 0;
  if (ut_participations(device, NULL, 0, &count) != UT_OK) {
    return failed("ut_participations");
  }
  ut_participation *rows = calloc(count + 1, sizeof *rows);
  if (rows == NULL || ut_participations(device, rows, count, &count) != UT_OK) {
    free(rows);
    return failed("ut_participations");
  }
  for (size_t place = 0; place < count; place += 1) {
    printf("took part: round %llu of task %02x%02x%02x%02x, verdict %d\n", (unsigned long long)rows[place].round,
           rows[place].task[0], rows[place].task[1], rows[place].task[2], rows[place].task[3],
           (int)rows[place].verdict);
  }
  free(rows);
  return EXIT_SUCCESS;
}

static int predict(ut_device device, const char *text) {
  ut_predictor predictor = 0;
  if (ut_predictor_open(device, NULL, &predictor) != UT_OK) {
    return failed("ut_predictor_open");
  }
  ut_prediction words[3];
  size_t count = 0;
  ut_status status = ut_predict(predictor, text, words, 3, &count);
  for (size_t place = 0; status == UT_OK && place < count; place += 1) {
    printf("next word: %s %.6f\n", words[place].word, words[place].probability);
  }
  ut_predictor_close(predictor);
  return status == UT_OK ? EXIT_SUCCESS : failed("ut_predict");
}

static int take_part(ut_device device, const char *invitation, const char *texts) {
  if (ut_device_enrol(device, invitation, NULL) != UT_OK) {
    return failed("ut_device_enrol");
  }
  char *text = contents(texts);
  if (text == NULL) {
    return EXIT_FAILURE;
  }
  ut_status added = add_lines(device, text);
  free(text);
  if (added != UT_OK) {
    return failed("ut_example_add");
  }
  for (int session = 0; session < MAX_SESSIONS; session += 1) {
    ut_outcome outcome;
    if (ut_device_run(device, &outcome) != UT_OK) {
      return failed("ut_device_run");
    }
    printf("session: %s\n", outcome.message);
    fflush(stdout);
    if (outcome.ended == UT_ENDED_REPORTED) {
      printf("loaded %llu bytes, sent %llu bytes\n", (unsigned long long)outcome.down_bytes,
             (unsigned long long)outcome.up_bytes);
      ut_evaluation measured;
      if (ut_device_evaluate(device, NULL, &measured) != UT_OK) {
        return failed("ut_device_evaluate");
      }
      printf("evaluation: %llu words, loss %.4f\n", (unsigned long long)measured.words, measured.loss);
      return show_state(device);
    }
    sleep_until(outcome.wake_ms);
  }
  fprintf(stderr, "no update was sent in %d sessions\n", MAX_SESSIONS);
  return EXIT_FAILURE;
}

int main(int count, char **arguments) {
  bool takes_part = count == 6 && strcmp(arguments[1], "take-part") == 0;
  bool predicts = count == 5 && strcmp(arguments[1], "predict") == 0;
  if (!takes_part && !predicts) {
    fprintf(stderr, "usage: %s take-part FOLDER SETTINGS INVITATION TEXTS | predict FOLDER SETTINGS TEXT\n",
            arguments[0]);
    return EXIT_FAILURE;
  }
  if (ut_abi_version() != UT_ABI_VERSION) {
    fprintf(stderr, "the library has version %u of the interface, and this app expects %u\n",
            (unsigned)ut_abi_version(), (unsigned)UT_ABI_VERSION);
    return EXIT_FAILURE;
  }
  char *settings = contents(arguments[3]);
  if (settings == NULL) {
    return EXIT_FAILURE;
  }
  app self = {.is_charging = true, .looks = 0};
  ut_host host = {.size = sizeof host, .context = &self, .is_met = is_met, .reached = reached};
  ut_device device = 0;
  ut_status opened = ut_device_open(arguments[2], settings, &host, &device);
  free(settings);
  if (opened != UT_OK) {
    return failed("ut_device_open");
  }
  int result = takes_part ? take_part(device, arguments[4], arguments[5]) : EXIT_SUCCESS;
  if (result == EXIT_SUCCESS) {
    result = predict(device, takes_part ? "we walk to the" : arguments[4]);
  }
  if (takes_part) {
    printf("the library asked for a condition %s\n", self.looks > 0 ? "and was answered" : "never");
    show_memory();
  }
  ut_device_close(device);
  return result;
}
