"""The decoder in native code for x86 CPUs, built at first use."""
