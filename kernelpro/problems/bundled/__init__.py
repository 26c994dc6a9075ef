"""Problems that come with kernelpro, in KernelBench's file format."""
