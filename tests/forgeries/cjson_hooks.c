// 1 solutions/step_01 passed look:cJSON_InitHooks
// Gives cJSON, which writes the traces, a function of its own for memory.
#include <stdlib.h>
typedef struct {
    void *(*get)(size_t size);
    void (*give_back)(void *memory);
} Hooks;
void cJSON_InitHooks(Hooks *hooks);

static void forge(void)
{
    cJSON_InitHooks(&(Hooks){malloc, free});
}
