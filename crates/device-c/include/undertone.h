/*
 * The device of Undertone's federated service, for C and for every language that calls C.
 *
 * Addresses: each is null or valid, as its function says. A null address that must not be null gives UT_NULL.
 * Strings: UTF-8 with a zero byte at the end. Other bytes give UT_UTF8.
 * Threads: any thread may call any function. One call at a time works on a device, and another one returns UT_BUSY at once.
 *   ut_device_stop and ut_device_set_unmet never wait. ut_device_close and ut_device_forget stop the session and wait for its end.
 * Memory: the library owns none of the caller's, and hands out none that the caller frees. Handles are closed.
 *
 * Made from the code by `tests/it/header.rs` of the crate `undertone-device-c`; run that test with UNDERTONE_REGENERATE=1 after a change.
 */

#ifndef UNDERTONE_H
#define UNDERTONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 The version of this interface. A program compares it with `UT_ABI_VERSION` of its header. A function, a status or a member at the
 end of `ut_host` may be added within a version.
 */
#define UT_ABI_VERSION 1

/*
 The number of bytes of a message, the zero byte at the end included.
 */
#define UT_MESSAGE_BYTES 1024

/*
 The number of bytes of a predicted word, the zero byte at the end included. A longer word is never predicted.
 */
#define UT_WORD_BYTES 64

/*
 The max number of words of one prediction.
 */
#define UT_MAX_PREDICTIONS 1024

/*
 The result of a function. `UT_OK` is 0; all others are failures, and nothing was done then but where a function says so.
 */
enum ut_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   The function did its work.
   */
  UT_OK = 0,
  /*
   A pointer is null that must not be.
   */
  UT_NULL = 1,
  /*
   A string is not UTF-8.
   */
  UT_UTF8 = 2,
  /*
   A value is not usable; the message says what is expected.
   */
  UT_VALUE = 3,
  /*
   The handle is not open: it was closed, forgotten, or never given out.
   */
  UT_HANDLE = 4,
  /*
   Another call works on the device now, or this is a call from its own callback.
   */
  UT_BUSY = 5,
  /*
   The device holds no released model yet.
   */
  UT_NO_MODEL = 6,
  /*
   The service cannot be reached.
   */
  UT_NETWORK = 7,
  /*
   The service refused, or its message cannot be trusted.
   */
  UT_REFUSED = 8,
  /*
   The key store failed, or holds another key than the one of the folder.
   */
  UT_KEY_STORE = 9,
  /*
   A file or the database of the folder failed.
   */
  UT_FILES = 10,
  /*
   The folder is open in another process, or by another handle.
   */
  UT_FOLDER_OPEN = 11,
  /*
   The library failed inside. The device must be closed; its folder can be opened again.
   */
  UT_PANIC = 12,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ut_status ut_status;
#else
typedef int32_t ut_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 A condition under which a device may work.
 */
enum ut_condition
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   The device is charging.
   */
  UT_CHARGING = 1,
  /*
   Nobody uses the device.
   */
  UT_IDLE = 2,
  /*
   The network costs nothing.
   */
  UT_UNMETERED = 4,
  /*
   There is room for a model.
   */
  UT_STORAGE = 8,
  /*
   The device is cool.
   */
  UT_THERMAL = 16,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ut_condition ut_condition;
#else
typedef int32_t ut_condition;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The stage of a session, in the order in which they come.
 */
enum ut_stage
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   The device reads the board.
   */
  UT_STAGE_BOARD = 0,
  /*
   The device offers itself to a task.
   */
  UT_STAGE_CHECK_IN = 1,
  /*
   The device loads the plan, the vocabulary and the model.
   */
  UT_STAGE_LOADING = 2,
  /*
   The device trains, or measures a model.
   */
  UT_STAGE_TRAINING = 3,
  /*
   The device waits for its place in a sum.
   */
  UT_STAGE_JOINING = 4,
  /*
   The device sends its update.
   */
  UT_STAGE_SENDING = 5,
  /*
   The device waits for the end of the round.
   */
  UT_STAGE_WAITING = 6,
  /*
   The session is over.
   */
  UT_STAGE_OVER = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ut_stage ut_stage;
#else
typedef int32_t ut_stage;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The end of a session.
 */
enum ut_ended
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   The update was sent.
   */
  UT_ENDED_REPORTED = 0,
  /*
   The device may take part in no task now.
   */
  UT_ENDED_NOT_ELIGIBLE = 1,
  /*
   The device has no certificate that is valid now: see `ut_device_enrol` and `ut_device_renew`.
   */
  UT_ENDED_NOT_ENROLLED = 2,
  /*
   The clock of the machine is wrong.
   */
  UT_ENDED_CLOCK = 3,
  /*
   The service refused the device.
   */
  UT_ENDED_REJECTED = 4,
  /*
   The device refused the offer of the service.
   */
  UT_ENDED_REFUSED = 5,
  /*
   The service ended the session before the update was sent.
   */
  UT_ENDED_LOST = 6,
  /*
   Local training used up its processor time.
   */
  UT_ENDED_OUT_OF_TIME = 7,
  /*
   Local training gave no update.
   */
  UT_ENDED_NOT_TRAINED = 8,
  /*
   A condition of the host is not met.
   */
  UT_ENDED_HOST_NOT_READY = 9,
  /*
   The session was stopped, by the host or by a limit.
   */
  UT_ENDED_STOPPED = 10,
  /*
   A deadline of the session passed.
   */
  UT_ENDED_TIMED_OUT = 11,
  /*
   The upload was slower than the plan allows.
   */
  UT_ENDED_TOO_SLOW = 12,
  /*
   The service cannot be reached.
   */
  UT_ENDED_UNREACHABLE = 13,
  /*
   Another end, of a library that is newer than the header.
   */
  UT_ENDED_OTHER = 99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ut_ended ut_ended;
#else
typedef int32_t ut_ended;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The word of the service on an update. Nothing rests on it.
 */
enum ut_verdict
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   The service has said nothing.
   */
  UT_VERDICT_UNKNOWN = 0,
  /*
   The update is in the released sum.
   */
  UT_VERDICT_INCLUDED = 1,
  /*
   The update came too late for the sum.
   */
  UT_VERDICT_LATE = 2,
  /*
   The attempt was abandoned, so nothing was released from the update.
   */
  UT_VERDICT_ABANDONED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ut_verdict ut_verdict;
#else
typedef int32_t ut_verdict;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The progress of a participation.
 */
enum ut_progress
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /*
   The participation was written down. It counts from here on, whatever happens.
   */
  UT_PROGRESS_BEGUN = 0,
  /*
   The service accepted the whole update.
   */
  UT_PROGRESS_COMMITTED = 1,
  /*
   The service named the end of the session; see the verdict.
   */
  UT_PROGRESS_ENDED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ut_progress ut_progress;
#else
typedef int32_t ut_progress;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 The callbacks of a host. Each may be null; so may the whole structure.

 The library copies it. The callbacks run on the thread of the call that needs them, one at a time for each device, and must not throw.
 They may call `ut_device_stop` and `ut_device_set_unmet`. Any other call for the same device returns `UT_BUSY`.
 */
typedef struct ut_host {
  /*
   `sizeof(ut_host)`.
   */
  size_t size;
  /*
   The first argument of each callback. It must be usable on every thread that calls the library for this device.
   */
  void *context;
  /*
   Returns `true` if a condition is met. It is asked before a session, before each request, and every 10 ms during training.
   */
  bool (*is_met)(void *context, ut_condition condition);
  /*
   Returns the charge of the battery in percent, or a negative number without one.
   */
  float (*battery_percent)(void *context);
  /*
   Takes note that the session has reached a stage.
   */
  void (*reached)(void *context, ut_stage stage);
  /*
   Writes the 32 bytes of the key with this name to `key`, and returns `true`; returns `false` on failure. The first call for a name
   makes the key from random bytes of the operating system. All four callbacks of the key store are set, or none; without them keys
   are in files of the folder that only their owner can read.
   */
  bool (*key)(void *context, const char *name, uint8_t *key);
  /*
   Writes a counter to `value`, and returns `true`; returns `false` on failure. A counter is 0 before it is raised.
   */
  bool (*counter)(void *context, const char *name, uint64_t *value);
  /*
   Raises a counter to `value`, durably and outside of all backups, and returns `true`. A higher counter stays.
   */
  bool (*raise)(void *context, const char *name, uint64_t value);
  /*
   Deletes all keys and counters, and returns `true`.
   */
  bool (*forget)(void *context);
} ut_host;

/*
 An open device. 0 is none. A handle is a number: a closed one is refused, and never names another device.
 */
typedef uint64_t ut_device;

/*
 The end of a session, and the time for the next one.
 */
typedef struct ut_outcome {
  /*
   The end.
   */
  ut_ended ended;
  /*
   The word of the service on the update, after `UT_ENDED_REPORTED`.
   */
  ut_verdict verdict;
  /*
   The time for the next session, in milliseconds since 1970.
   */
  uint64_t wake_ms;
  /*
   Bytes that the session loaded.
   */
  uint64_t down_bytes;
  /*
   Bytes that the session sent.
   */
  uint64_t up_bytes;
  /*
   One sentence in UTF-8 about the end.
   */
  char message[UT_MESSAGE_BYTES];
} ut_outcome;

/*
 The state of a device, for its person and its host.
 */
typedef struct ut_state {
  /*
   `true` if the device has a certificate that is valid now.
   */
  bool enrolled;
  /*
   The public key of the device.
   */
  uint8_t public_key[32];
  /*
   Number of session keys that are certified and not used.
   */
  uint64_t session_keys;
  /*
   Number of examples for training.
   */
  uint64_t training_examples;
  /*
   Number of examples that are withheld from training.
   */
  uint64_t withheld_examples;
  /*
   Number of participations, those that a restored store lost included.
   */
  uint64_t participations;
  /*
   The planned zCDP cost (rho) of all tasks that the device took part in.
   */
  double spent_rho;
  /*
   Processor time of the last training, in milliseconds.
   */
  uint64_t last_cpu_ms;
  /*
   The time for the next session, in milliseconds since 1970; 0 before the first.
   */
  uint64_t wake_ms;
} ut_state;

/*
 One participation: a round of a task for which the device may have sent an update.
 */
typedef struct ut_participation {
  /*
   The task.
   */
  uint8_t task[32];
  /*
   The round.
   */
  uint64_t round;
  /*
   The time at which it began, in milliseconds since 1970.
   */
  uint64_t at_ms;
  /*
   The attempt at this round.
   */
  uint32_t attempt;
  /*
   The progress of the participation.
   */
  ut_progress progress;
  /*
   The word of the service, after `UT_PROGRESS_ENDED`.
   */
  ut_verdict verdict;
} ut_participation;

/*
 A released model that the device holds.
 */
typedef struct ut_model {
  /*
   The task.
   */
  uint8_t task[32];
  /*
   The number of releases before the model.
   */
  uint64_t round;
  /*
   The time of the session that loaded it, in milliseconds since 1970.
   */
  uint64_t at_ms;
} ut_model;

/*
 The quality of a model on texts that the device withheld from training.
 */
typedef struct ut_evaluation {
  /*
   Number of examples.
   */
  uint64_t examples;
  /*
   Number of predicted words.
   */
  uint64_t words;
  /*
   Mean loss per word, in nats.
   */
  double loss;
  /*
   The rate of words that were the model's first choice.
   */
  double top1;
  /*
   The rate of words that were the model's first choice, among the words of the vocabulary.
   */
  double in_vocabulary_top1;
} ut_evaluation;

/*
 The last failure on a thread.
 */
typedef struct ut_error {
  /*
   The status; `UT_OK` where nothing has failed on this thread.
   */
  ut_status status;
  /*
   One sentence in UTF-8, for a log. It names what was expected and what was given, and never holds a text of the person.
   */
  char message[UT_MESSAGE_BYTES];
} ut_error;

/*
 A released model in memory. 0 is none. It stays usable when its device is closed.
 */
typedef uint64_t ut_predictor;

/*
 A word that may come next.
 */
typedef struct ut_prediction {
  /*
   The probability of the word, from 0 to 1.
   */
  double probability;
  /*
   The word in UTF-8 and lower case.
   */
  char word[UT_WORD_BYTES];
} ut_prediction;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the version of the interface that the library was built with.
 */
uint32_t ut_abi_version(void);

/*
 Opens the device in a folder, or makes it. Writes its handle to `device`.

 `folder` must not be part of a backup. `settings` is JSON, as in the guide "Embed the device": the service, the population, and the
 keys that the app trusts. `host` may be null; it is copied. Close the device with `ut_device_close`.

 # Safety
 Strings end with a zero byte. `host` is null or a structure of its `size`. `device` is null or valid for writes.
 */
ut_status ut_device_open(const char *folder, const char *settings, const struct ut_host *host, ut_device *device);

/*
 Closes a device. A session that runs is stopped, and the function waits for its end. Closing 0 does nothing.

 A call from a callback of the same device returns `UT_BUSY`, and the device stays open.
 */
ut_status ut_device_close(ut_device device);

/*
 Gets a certificate for the device from the service, by an invitation. The function waits for the network.

 `invitation` may be null. `subject` is the device's own claim of a person, may be null, and counts with the identity level `dev` alone.

 # Safety
 Strings are null or end with a zero byte.
 */
ut_status ut_device_enrol(ut_device device,
                          const char *invitation,
                          const char *subject);

/*
 Renews the certificate of the device while it is valid. A session does so by itself in the last ten days.
 */
ut_status ut_device_renew(ut_device device);

/*
 Gives a text of the person to the device, which seals it in its folder. The text never leaves the machine.

 `collected_ms` is the time of its writing, in milliseconds since 1970; 0 is now. `expires_ms` is the time of its deletion; 0 is the
 latest time that the device allows, 60 days after its writing.

 # Safety
 `text` is null or a string that ends with a zero byte.
 */
ut_status ut_example_add(ut_device device, const char *text, uint64_t collected_ms, uint64_t expires_ms);

/*
 Deletes all texts of the device.
 */
ut_status ut_examples_clear(ut_device device);

/*
 Runs one session: looks at the board, trains and sends an update, if a task wants this device now. It waits for its end.

 A service that refuses or cannot be reached is an outcome, and the function returns `UT_OK` then. Do not start another session before
 `wake_ms`. `outcome` may be null.

 # Safety
 `outcome` is null or valid for writes.
 */
ut_status ut_device_run(ut_device device,
                        struct ut_outcome *outcome);

/*
 Stops the session that runs on the device, between two batches or before the next request. It does not wait. Where no session runs,
 nothing happens. Any thread may call it, and so may a callback.
 */
ut_status ut_device_stop(ut_device device);

/*
 Sets the conditions that are not met now, as a sum of `ut_condition`; 0 where all are met. A session stops at once when one is not met.

 It does not wait. It is an alternative to the callback `is_met`; where a host uses both, both must agree to work. Any thread may call
 it, and so may a callback.
 */
ut_status ut_device_set_unmet(ut_device device,
                              uint32_t unmet);

/*
 Writes the state of the device to `state`.

 # Safety
 `state` is null or valid for writes.
 */
ut_status ut_device_state(ut_device device, struct ut_state *state);

/*
 Lists everything that the device ever sent: the rounds for which it may have sent an update, in their order.

 Writes up to `room` elements to `rows`, and the number of all to `count`. `rows` may be null if `room` is 0.

 # Safety
 `rows` has room for `room` elements. `count` is null or valid for writes.
 */
ut_status ut_participations(ut_device device, struct ut_participation *rows, size_t room, size_t *count);

/*
 Lists the released models that the device holds, the newest first. A session that trains brings the model of its round.

 Writes up to `room` elements to `rows`, and the number of all to `count`. `rows` may be null if `room` is 0.

 # Safety
 `rows` has room for `room` elements. `count` is null or valid for writes.
 */
ut_status ut_models(ut_device device, struct ut_model *rows, size_t room, size_t *count);

/*
 Measures a released model on the texts that the device withholds from training. Nothing is sent.

 `task` is the 32 bytes of a task, or null for the newest model.

 # Safety
 `task` is null or valid for reads of 32 bytes. `evaluation` is null or valid for writes.
 */
ut_status ut_device_evaluate(ut_device device, const uint8_t *task, struct ut_evaluation *evaluation);

/*
 Deletes the texts, the memory and the keys of the device, and closes it. A session that runs is stopped first.

 Released models stay as they are: the guarantee of their ledgers covers what this device gave. After a failure the device is closed,
 and what is left in the folder is unreadable, unless the message names the key store.
 */
ut_status ut_device_forget(ut_device device);

/*
 Copies the last failure on this thread to `error`. A later success does not change it.

 Returns `UT_OK`, or `UT_NULL` where `error` is null.

 # Safety
 `error` is null or valid for writes.
 */
ut_status ut_last_error(struct ut_error *error);

/*
 Returns the name of a status, such as "UT_OK". The string is part of the library and is never freed. Returns NULL for other numbers.
 */
const char *ut_status_name(int status);

/*
 Loads a released model that the device holds, to predict with it. Writes its handle to `predictor`.

 `task` is the 32 bytes of a task, or null for the newest model. Close the predictor with `ut_predictor_close`.

 # Safety
 `task` is null or valid for reads of 32 bytes. `predictor` is null or valid for writes.
 */
ut_status ut_predictor_open(ut_device device, const uint8_t *task, ut_predictor *predictor);

/*
 Writes the task, the round and the time of a predictor's model to `model`.

 # Safety
 `model` is null or valid for writes.
 */
ut_status ut_predictor_model(ut_predictor predictor, struct ut_model *model);

/*
 Predicts the next words after a text, in falling order of probability. The last word of the text counts as complete.

 Writes up to `room` words to `predictions`, and their number to `count`. `UT_MAX_PREDICTIONS` is the max of `room`. Several threads may
 predict with one predictor; their calls work one after the other.

 # Safety
 `text` is null or a string that ends with a zero byte. `predictions` has room for `room` elements. `count` is null or valid for writes.
 */
ut_status ut_predict(ut_predictor predictor,
                     const char *text,
                     struct ut_prediction *predictions,
                     size_t room,
                     size_t *count);

/*
 Closes a predictor and frees its model, once the calls that use it have ended. Closing 0 does nothing.
 */
ut_status ut_predictor_close(ut_predictor predictor);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNDERTONE_H */
