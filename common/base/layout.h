// Where a process stands among those of its node, on real nodes or simulated ones; and whether the
// launcher's variables make sense.

#ifndef HVDLAB_LAYOUT_H
#define HVDLAB_LAYOUT_H

#include <stdbool.h>

// A launcher's environment that contradicts itself or holds no numbers (a rank that is not below
// the size, a size above MAX_LAUNCHED, ...) makes the program exit with an error message. start.c
// calls this before main.
void launcher_check(void);

// Whether the launcher has said that all ranks are on this machine, simulated nodes or not. (Of its
// variables as they were at the first launcher_check: simulated nodes replace them.)
bool ranks_share_machine(void);

// Where a process stands among those of its node. Two settings make one machine look like several
// nodes: HVD_LAYOUT=0,0,1,0,1 names the node of each rank, from rank 0 on (names beyond the last
// rank are no matter); HVD_RANKS_PER_NODE=K makes as many as hold K ranks each, dealt to them in
// turn as mpirun's --map-by node does (rank r on node r % nodes). Where both are set, the layout
// counts; without them there is one node, this one. Exits where a setting makes no sense.
// HVD_RANKS_PER_NODE is at most MAX_LAUNCHED, a node's name at most 999. Until MPI is asked
// (set_place), the launcher's environment says which ranks are on a node.
typedef struct {
    int local_rank, local_size;
    int node, nodes; // 0 and 1 where nothing is simulated
} Place;
Place launcher_place(void);

// A simulated node's name: "node-12". From 100 to 999 a letter stands for the hundreds, "node-12-b"
// for 112, so that hosts can have names that differ in no number.
typedef struct {
    char text[32];
} NodeName;
NodeName node_name(int node);

// True where one of the two settings is there.
bool simulates_nodes(void);

// From now on launcher_place() answers so, unless one of the two settings says otherwise: MPI
// knows which ranks share a machine, whatever the launcher's environment says.
void set_place(int local_rank, int local_size);

#endif
