//! The import of files: sends them to the server in one request, and follows it. It goes on while other views are open.

mod dropped;

use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;
use wasm_bindgen::JsCast as _;
use wasm_bindgen::prelude::Closure;
use web_sys::{DragEvent, File, FormData, ProgressEvent, XmlHttpRequest, XmlHttpRequestResponseType};
use wire::live::view;
use wire::views::ApiError;
use wire::views::imports::ImportedRun;

/// The status of an answer that has the imported run.
const CREATED: u16 = 201;

/// How far an import is.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Bytes are sent, and the server reads them while they arrive.
    Sending {
        /// The number of bytes that are sent.
        sent: f64,
        /// The number of all bytes.
        all: f64,
    },
    /// All bytes are sent.
    Reading,
    /// The run is stored.
    Done(Arc<ImportedRun>),
    /// The import failed: why.
    Failed(String),
    /// The user cancelled it.
    Cancelled,
}

/// A request, with the handlers that live as long as the browser may call them.
struct Sending {
    request: XmlHttpRequest,
    _progress: Closure<dyn Fn(ProgressEvent)>,
    _end: Closure<dyn Fn(ProgressEvent)>,
}

/// The import of this page: one at a time.
#[derive(Clone, Copy)]
pub struct Imports {
    stage: RwSignal<Option<Stage>>,
    /// The name of the files, for the reader.
    what: RwSignal<String>,
    sending: StoredValue<Option<Sending>, LocalStorage>,
}

impl Imports {
    /// Creates a page without an import.
    pub fn new() -> Self {
        Self {
            stage: RwSignal::new(None),
            what: RwSignal::new(String::new()),
            sending: StoredValue::new_local(None),
        }
    }

    /// Returns how far the import is; `None` without one.
    pub fn stage(self) -> Option<Stage> {
        self.stage.get()
    }

    /// Returns what is imported, such as `4 files`.
    pub fn what(self) -> String {
        self.what.get()
    }

    /// Returns whether an import is in progress.
    pub fn is_busy(self) -> bool {
        self.stage.with(|stage| matches!(stage, Some(Stage::Sending { .. } | Stage::Reading)))
    }

    /// Imports what was dropped: files, and the files of folders.
    pub fn drop(self, event: &DragEvent) {
        let dropped = dropped::Dropped::of(event);
        spawn_local(async move {
            match dropped.files().await {
                Ok((folder, files)) => self.start(folder, files),
                Err(reason) => {
                    self.what.set("Import".into());
                    self.stage.set(Some(Stage::Failed(reason)));
                }
            }
        });
    }

    /// Imports files as one run: of this name, or of the name that the server finds.
    pub fn start(self, name: Option<String>, files: Vec<File>) {
        if files.is_empty() || self.is_busy() {
            return;
        }
        let all = files.iter().map(|file| file.size()).sum();
        self.what.set(match files.as_slice() {
            [one] => one.name(),
            _ => format!("{} files", units::count(files.len() as u64)),
        });
        self.stage.set(Some(Stage::Sending { sent: 0.0, all }));
        let sending = self.send(name, &files);
        if sending.is_none() {
            self.stage.set(Some(Stage::Failed("This browser cannot send files.".into())));
        }
        self.sending.set_value(sending);
    }

    fn send(self, name: Option<String>, files: &[File]) -> Option<Sending> {
        let form = FormData::new().ok()?;
        for file in files {
            form.append_with_blob_and_filename("file", file, &file.name()).ok()?;
        }
        let name = name.map(|name| format!("&name={}", js_sys::encode_uri_component(&name)));
        let request = XmlHttpRequest::new().ok()?;
        request.open("POST", &format!("/api/v1/imports?form=frame{}", name.unwrap_or_default())).ok()?;
        request.set_response_type(XmlHttpRequestResponseType::Arraybuffer);
        let progress = Closure::<dyn Fn(ProgressEvent)>::new(move |event: ProgressEvent| {
            let (sent, all) = (event.loaded(), event.total());
            self.stage.set(Some(if sent < all { Stage::Sending { sent, all } } else { Stage::Reading }));
        });
        let end = Closure::<dyn Fn(ProgressEvent)>::new(move |_| self.end());
        request.upload().ok()?.set_onprogress(Some(progress.as_ref().unchecked_ref()));
        request.set_onloadend(Some(end.as_ref().unchecked_ref()));
        request.send_with_opt_form_data(Some(&form)).ok()?;
        Some(Sending { request, _progress: progress, _end: end })
    }

    /// Reads the answer. A cancelled request ends as well, and has none.
    fn end(self) {
        let answer =
            self.sending.with_value(|sending| sending.as_ref().map(|sending| answer(&sending.request)));
        if let (Some(answer), true) = (answer, self.stage.with_untracked(is_open)) {
            self.stage.set(Some(answer.map_or_else(Stage::Failed, |run| Stage::Done(Arc::new(run)))));
        }
    }

    /// Cancels the import. The server forgets what it has received.
    pub fn cancel(self) {
        self.stage.set(Some(Stage::Cancelled));
        self.sending.with_value(|sending| {
            if let Some(sending) = sending {
                // An error means that the request has ended.
                let _ended = sending.request.abort();
            }
        });
    }

    /// Removes an import that has ended from the page.
    pub fn dismiss(self) {
        self.stage.set(None);
        self.sending.set_value(None);
    }
}

fn is_open(stage: &Option<Stage>) -> bool {
    matches!(stage, Some(Stage::Sending { .. } | Stage::Reading))
}

fn answer(request: &XmlHttpRequest) -> Result<ImportedRun, String> {
    let body = request.response().map(|body| js_sys::Uint8Array::new(&body).to_vec()).unwrap_or_default();
    match request.status().unwrap_or_default() {
        CREATED => view::decode(&body).map_err(|error| error.to_string()),
        0 => Err("The connection to the server broke before the import was done.".into()),
        status => {
            let error = serde_json::from_str::<ApiError>(&String::from_utf8_lossy(&body));
            Err(error.map_or_else(
                |_| format!("the server answered {status}"),
                |error| units::capitalized(&error.error),
            ))
        }
    }
}
