"""The SYCL engine; skipped where dpctl finds no device."""
