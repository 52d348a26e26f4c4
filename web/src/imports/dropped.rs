//! What was dropped on the page: files, and folders with files.

use js_sys::{Array, Promise};
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{DragEvent, File, FileSystemDirectoryEntry, FileSystemFileEntry};
use wire::views::imports::may_be_recording;

/// The files and folders of a drop. The browser gives them during the event only.
pub(super) struct Dropped {
    files: Vec<File>,
    folders: Vec<FileSystemDirectoryEntry>,
}

impl Dropped {
    pub(super) fn new(event: &DragEvent) -> Self {
        let mut dropped = Self { files: Vec::new(), folders: Vec::new() };
        let Some(items) = event.data_transfer().map(|data| data.items()) else { return dropped };
        for item in (0..items.length()).filter_map(|at| items.get(at)) {
            match item.webkit_get_as_entry().ok().flatten() {
                Some(entry) if entry.is_directory() => dropped.folders.push(entry.unchecked_into()),
                _ => dropped.files.extend(item.get_as_file().ok().flatten()),
            }
        }
        dropped
    }

    /// Returns all files, and the name of the folder if they are of one.
    pub(super) async fn files(self) -> Result<(Option<String>, Vec<File>), String> {
        let Self { mut files, folders } = self;
        let only =
            folders.first().filter(|_| files.is_empty() && folders.len() == 1).map(|folder| folder.name());
        for folder in &folders {
            let name = folder.name();
            let count_before = files.len();
            add_folder(folder, &mut files).await.map_err(|_| format!("The folder {name} cannot be read."))?;
            if files.len() == count_before {
                return Err(format!(
                    "The folder {name} has no file whose name says that it may be a trace, table, log or dump."
                ));
            }
        }
        if files.is_empty() {
            return Err("What was dropped is not a file.".into());
        }
        Ok((only, files))
    }
}

/// Adds the recordings that lie in a folder, but not those in folders within it.
async fn add_folder(folder: &FileSystemDirectoryEntry, files: &mut Vec<File>) -> Result<(), JsValue> {
    let reader = folder.create_reader();
    loop {
        // Browsers return a part of the entries at a time, and none at the end.
        let entries = called(|done, failed| reader.read_entries_with_callback_and_callback(done, failed));
        let entries: Array = entries.await?.unchecked_into();
        if entries.length() == 0 {
            return Ok(());
        }
        for entry in entries.iter() {
            let entry: FileSystemFileEntry = entry.unchecked_into();
            if entry.is_file() && may_be_recording(&entry.name()) {
                let file = called(|done, failed| {
                    entry.file_with_callback_and_callback(done, failed);
                    Ok(())
                });
                files.push(file.await?.unchecked_into());
            }
        }
    }
}

/// Calls a function that takes two callbacks, and waits for one of them.
async fn called(
    mut call: impl FnMut(&js_sys::Function, &js_sys::Function) -> Result<(), JsValue>,
) -> Result<JsValue, JsValue> {
    JsFuture::from(Promise::new(&mut |done, failed| {
        if let Err(error) = call(&done, &failed) {
            let _unheard = failed.call1(&JsValue::NULL, &error);
        }
    }))
    .await
}
