"""Problems of whole workloads, beside the bundled nine: experts, retrieval, decoding."""
