// Times whole trainings.

#include "accuracy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "record.h"
#include "base/util.h"

enum { BATCH = 512 };
#define TARGET 0.85

// What the trainer's lines tell.
typedef struct {
    double seconds;     // from its start to the end of its last epoch
    double first_epoch; // the first one's seconds
    double accuracy;    // of the last validation
    int epochs;
    bool reached;
} Training;

static void read_line(Training *t, const char *line, double begin)
{
    const char *accuracy = strstr(line, " - val_accuracy: ");
    if (accuracy && sscanf(accuracy, " - val_accuracy: %lf", &t->accuracy) == 1) {
        t->epochs++;
        t->seconds = seconds_now() - begin;
    }
    sscanf(line, "Cumulative training time after epoch 1: %lf", &t->first_epoch);
    t->reached |= strncmp(line, "Early stopping after", strlen("Early stopping after")) == 0;
}

// False where it can't be run; standard error says why.
static bool train(const char *trainer, Precision precision, Training *t)
{
    char *command =
        format_text("'%s' --device gpu --precision %s --batch-size %d --val-batch-size %d "
                    "--epochs 40 --target-accuracy %g --patience 2",
                    trainer, precision_names[precision], BATCH, BATCH, TARGET);
    fflush(stdout);
    double begin = seconds_now();
    FILE *lines = popen(command, "r");
    free(command);
    char line[512];
    while (lines && fgets(line, sizeof line, lines))
        read_line(t, line, begin);
    return lines && pclose(lines) == 0 && t->epochs > 0;
}

static void report(cJSON *results, const Subject *s, const Training *t)
{
    printf("  %-10s %9.2f %7d %12.2f %12.4f%s\n", precision_names[s->precision], t->seconds,
           t->epochs, t->first_epoch, t->accuracy, t->reached ? "" : "   not reached");
    cJSON *result = add_result(results, "time_to_accuracy", "hvdlab", s);
    cJSON_AddNumberToObject(result, "target_accuracy", TARGET);
    cJSON_AddBoolToObject(result, "reached", t->reached);
    cJSON_AddNumberToObject(result, "seconds", t->seconds);
    cJSON_AddNumberToObject(result, "epochs", t->epochs);
    cJSON_AddNumberToObject(result, "first_epoch_seconds", t->first_epoch);
    cJSON_AddNumberToObject(result, "val_accuracy", t->accuracy);
    if (getenv("HVDLAB_FLAGS"))
        cJSON_AddStringToObject(result, "flags", getenv("HVDLAB_FLAGS"));
}

void time_to_accuracy(cJSON *results, const char *trainer)
{
    printf(
        "Time to a validation accuracy above %g, twice in a row, from the start of %s; batch %d\n",
        TARGET, trainer, BATCH);
    printf("  %-10s %9s %7s %12s %12s\n", "", "seconds", "epochs", "first epoch", "val_accuracy");
    for (Precision p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        Subject s = {"wrn", 10, BATCH, DEVICE_GPU, p};
        Training training = {0};
        if (train(trainer, p, &training))
            report(results, &s, &training);
        else
            printf("  %-10s is left out: the trainer failed\n", precision_names[p]);
    }
}
