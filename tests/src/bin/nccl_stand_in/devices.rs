//! The devices of a process, from the driver that the loader finds.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use anyhow::{Context as _, ensure};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// Selects the device that this thread uses from now on.
pub(crate) fn take(ordinal: u32) -> anyhow::Result<()> {
    // SAFETY: the fake GPU has no initializers and stays loaded, as a linked library does. The types are those of
    // cuda.h, and one handle is written.
    unsafe {
        let driver = Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_GLOBAL).context("libcuda.so.1")?;
        let initialize = driver.get::<unsafe extern "C" fn(c_uint) -> c_int>(b"cuInit")?;
        let retain = driver
            .get::<unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int>(b"cuDevicePrimaryCtxRetain")?;
        let select = driver.get::<unsafe extern "C" fn(*mut c_void) -> c_int>(b"cuCtxSetCurrent")?;
        let mut context = ptr::null_mut();
        ensure!(
            initialize(0) == 0 && retain(&raw mut context, ordinal as c_int) == 0,
            "cannot open device {ordinal}"
        );
        ensure!(select(context) == 0, "cannot select the context of device {ordinal}");
        std::mem::forget(driver);
    }
    Ok(())
}
