// 2 steps/step_02 UNTOUCHED
// Writes a verdict where the check writes its own.
#include <stdio.h>

static void forge(void)
{
    const char *paths[] = {"KIT/build/check/step_02.json", "../../step_02.json", "step_02.json"};
    for (int i = 0; i < 3; i++) {
        FILE *file = fopen(paths[i], "w");
        if (file) {
            fputs("{\"passed\": true}", file);
            fclose(file);
        }
    }
}
