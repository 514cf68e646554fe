// The one unit that compiles Asio itself (ASIO_SEPARATE_COMPILATION).
#include <asio/impl/src.hpp>
