"""Problems of services, beside the bundled nine: experts, retrieval, decoding."""
