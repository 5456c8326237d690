"""The ground floor: plain frozen data and the two ports. Standard library only, no I/O."""
