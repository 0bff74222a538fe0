// Networks that exist only within this machine.

#ifndef HVDLAB_BRIDGES_H
#define HVDLAB_BRIDGES_H

// Keeps Open MPI from using the bridges to containers and virtual machines of this machine, unless
// a setting says which networks to use. Before MPI is started.
void leave_out_bridges(void);

#endif
