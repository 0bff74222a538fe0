// Checks the launcher's variables, and reads HVD_LAYOUT and HVD_RANKS_PER_NODE.

#include "base/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/launcher.h"
#include "base/numbers.h"
#include "base/setting.h"

#define MAX_NODE 999 // in HVD_LAYOUT

// The variables of one kind of launcher; NULL: it has none for this.
typedef struct {
    const char *rank, *size, *local_rank, *local_size;
} LauncherNames;

// One variable: a whole number from `least` to `most`, or `otherwise` if it is not set.
static int check_variable(const char *name, int least, int most, int otherwise)
{
    const char *text = name ? secure_getenv(name) : NULL;
    if (!text || !*text)
        return otherwise;
    long number = environment_number(name, most);
    if (number < least)
        die("%s=%.40s is not a whole number from %d to %d, as a launcher says it of a rank; start "
            "the program by mpirun, or without its variables",
            name, text, least, most);
    return (int)number;
}

static void check_names(const LauncherNames *names)
{
    int size = check_variable(names->size, 1, MAX_LAUNCHED, MAX_LAUNCHED);
    check_variable(names->rank, 0, size - 1, 0);
    int local_size = check_variable(names->local_size, 1, size, size);
    check_variable(names->local_rank, 0, local_size - 1, 0);
}

static bool looked, one_machine; // before main, when simulated nodes have replaced nothing yet

bool ranks_share_machine(void)
{
    return one_machine;
}

static void look_at_machines(void)
{
    const char *local = secure_getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    const char *all = secure_getenv("OMPI_COMM_WORLD_SIZE");
    if (!looked)
        one_machine = local && all && strcmp(local, all) == 0;
    looked = true;
}

// Limits: callers allocate memory by a launcher's numbers.
void launcher_check(void)
{
    look_at_machines();
    static const LauncherNames open_mpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE"};
    static const LauncherNames pmi = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
    static const LauncherNames slurm = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL};
    check_names(&open_mpi);
    check_names(&pmi);
    if (launched_by_srun())
        check_names(&slurm);
    if (launcher_rank() >= launcher_size())
        die("the launcher's variables say rank %d of %d; start the program by mpirun, or "
            "without them",
            launcher_rank(), launcher_size());
}

// MPI's own answer, after its start.
static Place place_by_mpi; // local_size 0: not yet

void set_place(int local_rank, int local_size)
{
    place_by_mpi = (Place){.local_rank = local_rank, .local_size = local_size, .nodes = 1};
}

// Without a simulated layout.
static Place true_place(void)
{
    if (place_by_mpi.local_size > 0)
        return place_by_mpi;
    launcher_check(); // the program may have changed what stood there before main
    return (Place){
        .local_rank = launcher_local_rank(), .local_size = launcher_local_size(), .nodes = 1};
}

// The next number of a list with commas between them; moves *at behind it. -1: there is none.
static int next_node(const char **at)
{
    uint64_t node;
    const char *end = read_digits(*at, MAX_NODE, &node);
    bool separated = end && *end == ',' && end[1] != '\0';
    if (!end || (!separated && *end != '\0'))
        return -1;
    *at = end + separated;
    return (int)node;
}

static Place place_in_layout(const char *layout)
{
    launcher_check();
    int rank = launcher_rank(), size = launcher_size(), node_of_rank = -1;
    Place place = {.nodes = 1};
    for (int pass = 0; pass < 2; pass++) { // the first finds this rank's node
        const char *at = layout;
        for (int r = 0; r < size; r++) {
            int node = next_node(&at);
            if (node < 0)
                die("HVD_LAYOUT=%.200s does not name a node for each of %d ranks, as 0,0,1 does "
                    "for three (0 to %d)",
                    layout, size, MAX_NODE);
            if (r == rank)
                node_of_rank = node;
            place.nodes = node >= place.nodes ? node + 1 : place.nodes;
            place.local_rank += pass == 1 && node == node_of_rank && r < rank;
            place.local_size += pass == 1 && node == node_of_rank;
        }
    }
    place.node = node_of_rank;
    return place;
}

Place launcher_place(void)
{
    const char *layout = setting_text(HVD_LAYOUT);
    if (layout)
        return place_in_layout(layout);
    int ranks_per_node = setting_count(HVD_RANKS_PER_NODE);
    if (!ranks_per_node)
        return true_place();
    launcher_check();
    int rank = launcher_rank(), size = launcher_size();
    int nodes = size / ranks_per_node + (size % ranks_per_node != 0);
    int node = rank % nodes;
    return (Place){
        .local_rank = rank / nodes,
        .local_size = size / nodes + (node < size % nodes),
        .node = node,
        .nodes = nodes,
    };
}

NodeName node_name(int node)
{
    NodeName name;
    if (node < 100 || node > MAX_NODE)
        snprintf(name.text, sizeof name.text, "node-%d", node);
    else
        snprintf(name.text, sizeof name.text, "node-%d-%c", node % 100, 'a' + node / 100);
    return name;
}

bool simulates_nodes(void)
{
    return setting_text(HVD_LAYOUT) || setting_text(HVD_RANKS_PER_NODE);
}
