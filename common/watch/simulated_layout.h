// One machine that looks like several nodes (base/layout.h).

#ifndef HVDLAB_SIMULATED_LAYOUT_H
#define HVDLAB_SIMULATED_LAYOUT_H

// Before main (start.c): replaces the launcher's variables for local ranks and sizes.
void simulate_launcher(void);

#endif
